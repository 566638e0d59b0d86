"""Seeded random checkpoints in the format Hugging Face publishes, for the transformers tests.

    python -m tests.models.random_transformers KIND[-VARIANT] small|real FOLDER

Run in a process of its own: it needs torch. The weights are spread with data: each batch norm gets
the statistics of its input and each class head the scale and bias at which logits vary and a
handful of queries pass 0.5, so that a wrong class, order or threshold cannot hide behind a
constant output.
"""

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file

from models import home
from models.labels import COCO80, COCO91

IMAGES = home.data() / "coco128" / "images"
# what is drawn anew, and how wide: transformers' own first values make all queries alike
SCALES = {
    "query_position_embeddings|detection_tokens|level_embed": 1.0,
    "(?<!query_)position_embeddings": 0.2,
    r"(\.attention_weights|reference_points)\.weight": 0.1,
    r"sampling_offsets\.weight": 0.02,  # wider ones make chaos of six layers: FP32 is not exact
}
# and scaled: attention that looks at a few places, over features that still differ by place
SHARPER = {
    r"encoder_attn\.(q|k)_proj\.weight": 2.0,
    r"model\.encoder\..*self_attn\.o_proj\.weight": 0.3,
}
CLASS_HEADS = r"(class_labels_classifier(\.layers\.2)?|class_embed\.\d|enc_score_head)$"
BRANCH_END = "layer.2.normalization"  # of a ResNet's bottleneck
FEW = {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1], "embedding_size": 16}
SMALL = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}


def labels(sparse: bool) -> dict[str, Any]:
    """As published: every gap "N/A", and MMDetection's names in the contiguous list."""
    if sparse:
        names = [re.sub("N/A.*", "N/A", name) for name in COCO91]
    else:
        names = [{"couch": "sofa", "tv": "tvmonitor"}.get(name, name) for name in COCO80]
    return {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}}


def detr(small: bool, full_backbone: bool = False) -> Any:
    few = FEW if small and not full_backbone else {}
    resnet = transformers.ResNetConfig(out_features=["stage4"], **few)
    settings = {"d_model": 64, "num_queries": 30, **SMALL} if small else {}
    config = transformers.DetrConfig(backbone_config=resnet, **settings, **labels(True))
    return transformers.DetrForObjectDetection(config)


def yolos(small: bool) -> Any:
    few = {"hidden_size": 96, "num_attention_heads": 4, "num_hidden_layers": 3}
    few |= {"intermediate_size": 128, "num_detection_tokens": 30}
    published = {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 12}
    published |= {"intermediate_size": 1536, "image_size": [512, 864]}
    config = transformers.YolosConfig(**(few if small else published), **labels(True))
    return transformers.YolosForObjectDetection(config)


def rt_detr(small: bool) -> Any:
    few = {"num_queries": 60, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "decoder_layers": 2}
    few |= {"d_model": 64, "encoder_hidden_dim": 64, "decoder_in_channels": [64, 64, 64]}
    few |= {"encoder_in_channels": [64, 96, 128], "num_denoising": 0}
    stages = {"out_features": ["stage2", "stage3", "stage4"]}
    backbone = transformers.RTDetrResNetConfig(**stages, **(FEW if small else {}))
    config = transformers.RTDetrConfig(
        backbone_config=backbone, **(few if small else {}), **labels(False)
    )
    return transformers.RTDetrForObjectDetection(config)


def deformable_detr(small: bool, refine: bool = False, full_backbone: bool = False) -> Any:
    few = FEW if small and not full_backbone else {}
    resnet = transformers.ResNetConfig(out_features=["stage2", "stage3", "stage4"], **few)
    settings = {"d_model": 64, "num_queries": 60, **SMALL} if small else {}
    config = transformers.DeformableDetrConfig(
        backbone_config=resnet, with_box_refine=refine, **settings, **labels(True)
    )
    return transformers.DeformableDetrForObjectDetection(config)


KINDS: dict[str, Callable[..., Any]] = {
    "detr": detr,
    "yolos": yolos,
    "rt_detr": rt_detr,
    "deformable_detr": deformable_detr,
}


def spread(model: Any, size: tuple[int, int]) -> None:
    """Give `model` weights with which its outputs vary from query to query and image to image."""
    paths = sorted(IMAGES.glob("*.jpg"))[:12]
    pictures = [pixels(path, size) for path in paths]
    generator = torch.Generator().manual_seed(3)

    def normal(like: torch.Tensor, scale: float) -> torch.Tensor:
        return torch.randn(like.shape, generator=generator) * scale

    def adapt(gain: float, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        (values,) = inputs
        module.running_mean.copy_(values.mean((0, 2, 3)))
        module.running_var.copy_(values.var((0, 2, 3)) + 1e-3)
        module.weight.copy_(gain + normal(module.weight, 0.1 * gain))
        module.bias.copy_(normal(module.bias, 0.1))

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.copy_(normal(module.weight, 1.2 / module.in_features**0.5))
    for name, parameter in model.named_parameters():
        for pattern, factor in SHARPER.items():
            if re.search(pattern, name):
                parameter.mul_(factor)
    for name, parameter in model.named_parameters():
        for pattern, scale in SCALES.items():
            if re.search(pattern, name):
                parameter.copy_(normal(parameter, scale))
    refines = model.config.model_type == "rt_detr" or getattr(model.config, "with_box_refine", 0)
    handles = [
        # residual branches add little, as in trained networks: else 50 layers amplify rounding
        module.register_forward_pre_hook(partial(adapt, 0.25 if name.endswith(BRANCH_END) else 1.0))
        for name, module in model.named_modules()
        if hasattr(module, "running_mean")
    ]
    model(pictures[0])
    for handle in handles:
        handle.remove()
    for name, module in model.named_modules():
        if re.search("bbox", name) and hasattr(module, "layers"):
            last = list(module.layers)[-1]
            # layers that refine each other's boxes add up: small steps, or no box has an area
            step = 0.3 if refines else 2.0
            last.weight.copy_(normal(last.weight, step / last.in_features**0.5))
            last.bias.copy_(torch.tensor([0, 0, 0.2, 0.2] if refines else [0, 0, -1, -1]))
    for head in class_heads(model):  # each sees what the ones before it made
        seen: list[torch.Tensor] = []
        handle = head.register_forward_pre_hook(partial(remember, seen))
        for picture in pictures:
            model(picture)
        handle.remove()
        calibrate(head, seen, normal, model.config.model_type in ("detr", "yolos"))


def calibrate(head: Any, seen: list[torch.Tensor], normal: Any, softmax: bool) -> None:
    """Class weights that see how queries differ, not how images do: without it, every query of an
    image gives the same class. A few pairs (a third of the queries) then pass 0.5.

    seen: an image each, float32 [Q, D], the head's inputs.
    """
    means = torch.stack([values.mean(0) for values in seen])
    common = means.mean(0)
    directions = torch.linalg.svd(means - common, full_matrices=False).Vh[: len(seen) - 1]
    weight = normal(head.weight, 1.0)
    weight -= weight @ directions.T @ directions
    logits = torch.stack([(values - common) @ weight.T for values in seen])
    weight *= (4 if softmax else 1.5) / logits.std()
    logits = torch.stack([(values - common) @ weight.T for values in seen])
    bias = -weight @ common
    if softmax:
        bias[-1] += (logits[..., :-1].amax(-1) - logits[..., -1]).quantile(0.6)
    else:
        bias -= logits.flatten(1).topk(20).values[:, -1].mean()
    head.weight.copy_(weight)
    head.bias.copy_(bias)


def pixels(path: Path, size: tuple[int, int]) -> torch.Tensor:
    picture = Image.open(path).convert("RGB").resize(size[::-1])
    return torch.tensor(np.array(picture)).permute(2, 0, 1)[None] / 255 * 4 - 2


def class_heads(model: Any) -> list[torch.nn.Linear]:
    """The last layer's, after RT-DETR's that picks its queries (the others decide nothing)."""
    heads = [
        module
        for name, module in model.named_modules()
        if re.search(CLASS_HEADS, name) and isinstance(module, torch.nn.Linear)
    ]
    return list(dict.fromkeys([heads[0], heads[-1]]))


def remember(seen: list[torch.Tensor], _: Any, given: tuple[torch.Tensor, ...]) -> None:
    seen.append(given[0][0])


def as_first_published(folder: Path, timm: Path) -> None:
    """Writes the checkpoint in `folder` to `timm` as of 2022: timm's names of the backbone's
    weights, timm's counters, and a configuration that only says "resnet50"."""
    state = load_file(folder / "model.safetensors")
    kinds = {"convolution": "conv", "normalization": "bn"}
    renamed = {}
    for name, value in state.items():
        prefix, backbone, rest = name.partition("backbone.conv_encoder.model.")
        part = rest.split(".")
        if backbone and part[0] == "embedder":
            rest = f"{kinds[part[2]]}1.{part[3]}"
        elif backbone and part[5] == "shortcut":
            index = {"convolution": 0, "normalization": 1}[part[6]]
            rest = f"layer{int(part[2]) + 1}.{part[4]}.downsample.{index}.{part[7]}"
        elif backbone:
            number = int(part[6]) + 1
            rest = f"layer{int(part[2]) + 1}.{part[4]}.{kinds[part[7]]}{number}.{part[8]}"
        renamed[prefix + backbone + rest] = value
        if backbone and name.endswith("running_mean"):
            counter = rest.replace("running_mean", "num_batches_tracked")
            renamed[prefix + backbone + counter] = torch.tensor(0)
    config = json.loads((folder / "config.json").read_text())
    config |= {"backbone": "resnet50", "use_timm_backbone": True, "backbone_config": None}
    config |= {"use_pretrained_backbone": True, "backbone_kwargs": {"out_indices": [1, 2, 3, 4]}}
    timm.mkdir()
    (timm / "config.json").write_text(json.dumps(config))
    save_file(renamed, timm / "model.safetensors")


VARIANTS = {"": {}, "refine": {"refine": True}, "timm": {"full_backbone": True}}


def main(kind: str, size: str, folder: Path) -> None:
    torch.manual_seed(11)
    torch.set_num_threads(2)
    kind, _, variant = kind.partition("-")
    with torch.no_grad():
        model = KINDS[kind](size == "small", **VARIANTS[variant]).train(False)
        if variant != "timm":
            spread(model, {"yolos": (512, 864), "rt_detr": (640, 640)}.get(kind, (480, 640)))
    model.save_pretrained(folder)
    if variant == "timm":
        as_first_published(folder, folder / "timm")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
