"""Makes checkpoints of seeded random weights in the published formats, with ultralytics itself.

    python -m tests.models.random_ultralytics yolov8n.yaml FOLDER IMAGE...

Writes the archive as Ultralytics does (fp16, pickled model) or, for YOLOv10, a Hugging Face
directory; beside it `state.npz`, the state dict by torch's own reading. The weights are spread:
normalisation is fitted to real images, and the head's last layers are scaled so that scores and
boxes vary and thresholds are crossed. `NAME@eps`, `@add` and `@act` change
that attribute wherever it is, as if another network had been published. Runs in a process of its
own: it needs torch.
"""

import contextlib
import copy
import json
import sys
from pathlib import Path

import cv2
import numpy as np

from models.labels import COCO80
from models.references.ultralytics_pipeline import without_torchvision

ANCHORS = [
    [10, 13, 16, 30, 33, 23],
    [30, 61, 62, 45, 59, 119],
    [116, 90, 156, 198, 373, 326],
]
C = "Conv"
YOLOV5N = {  # models/yolov5n.yaml of the YOLOv5 repository, 6.0 and later
    "nc": 80,
    "depth_multiple": 0.33,
    "width_multiple": 0.25,
    "anchors": ANCHORS,
    "backbone": [
        [-1, 1, C, [64, 6, 2, 2]], [-1, 1, C, [128, 3, 2]], [-1, 3, "C3", [128]],
        [-1, 1, C, [256, 3, 2]], [-1, 6, "C3", [256]], [-1, 1, C, [512, 3, 2]],
        [-1, 9, "C3", [512]], [-1, 1, C, [1024, 3, 2]], [-1, 3, "C3", [1024]],
        [-1, 1, "SPPF", [1024, 5]],
    ],
    "head": [
        [-1, 1, C, [512, 1, 1]], [-1, 1, "nn.Upsample", ["None", 2, "nearest"]],
        [[-1, 6], 1, "Concat", [1]], [-1, 3, "C3", [512, False]],
        [-1, 1, C, [256, 1, 1]], [-1, 1, "nn.Upsample", ["None", 2, "nearest"]],
        [[-1, 4], 1, "Concat", [1]], [-1, 3, "C3", [256, False]],
        [-1, 1, C, [256, 3, 2]], [[-1, 14], 1, "Concat", [1]], [-1, 3, "C3", [512, False]],
        [-1, 1, C, [512, 3, 2]], [[-1, 10], 1, "Concat", [1]], [-1, 3, "C3", [1024, False]],
        [[17, 20, 23], 1, "Detect", ["nc", "anchors"]],
    ],
}  # fmt: skip


def main(name: str, folder: Path, images: list[Path], seed: int = 1) -> None:
    without_torchvision()
    import torch
    from ultralytics.nn.tasks import DetectionModel, yaml_model_load

    name, _, changed = name.partition("@")
    torch.manual_seed(seed)
    legacy = name == "yolov5n-legacy"
    description = copy.deepcopy(YOLOV5N) if legacy else yaml_model_load(name)
    if legacy:
        del description["anchors"]
        description["head"][-1][-1] = ["nc"]
    model = DetectionModel(description, ch=3, nc=80, verbose=False)
    model.names = dict(enumerate(COCO80))
    if legacy:
        model.yaml = copy.deepcopy(YOLOV5N)
        _legacy_head(model)
    batch = torch.stack([_pixels(path) for path in images])
    features = _fit(model, batch, branches=0.2 if name == "yolov10x.yaml" else 1.0)
    _spread(model.model[-1], features)
    for module in model.modules():
        if hasattr(module, changed):
            setattr(module, changed, {"eps": 1e-5, "add": True, "act": torch.nn.ReLU()}[changed])
    folder.mkdir(parents=True, exist_ok=True)
    if "v10" not in name:
        model = model.half()
    state = {key: value.float().numpy() for key, value in model.state_dict().items()}
    np.savez(folder / "state.npz", **state)
    if "v10" in name:
        from safetensors.torch import save_file

        save_file(
            {f"model.{key}": value.clone() for key, value in model.state_dict().items()},
            folder / "model.safetensors",
        )
        about = {"model": name, "names": {str(k): v for k, v in model.names.items()}}
        (folder / "config.json").write_text(json.dumps(about))
    else:
        for parameter in model.parameters():
            parameter.requires_grad = False
        content = {"epoch": -1, "best_fitness": None, "model": model, "ema": None, "updates": None}
        content |= {"optimizer": None, "train_args": {"imgsz": 640}, "date": "2026-12-01"}
        torch.save(content, folder / f"{name.removesuffix('.yaml')}.pt")


def _legacy_head(model):
    """Turn the head into YOLOv5's: one convolution an output, and the anchors in cells."""
    import torch

    head = model.model[-1]
    channels = [branch[0].conv.in_channels for branch in head.cv2]
    for key in list(head._modules):
        del head._modules[key]
    head.m = torch.nn.ModuleList(torch.nn.Conv2d(each, 255, 1) for each in channels)
    anchors = torch.tensor(ANCHORS).float().view(3, 3, 2)
    del head.__dict__["stride"]
    head.stride = model.stride.clone()
    head.__dict__.pop("anchors", None)
    del type(head).anchors
    head.register_buffer("anchors", anchors / model.stride.view(-1, 1, 1))


def _pixels(path):
    import torch
    from ultralytics.data.augment import LetterBox

    image = LetterBox((640, 640), auto=False)(image=cv2.imread(str(path)))[..., ::-1]
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))).float() / 255


def _fit(model, batch, branches):
    """Fit every normalisation to the images; returns the head's inputs.

    branches: scales what a residual block adds to its input, as training does in deep networks:
    YOLOv10x's depth turns single precision's rounding into four times its family's bound otherwise
    (measured against double).
    """
    import torch

    kept = {}

    def keep(_module, inputs):
        kept["maps"] = [each.clone() for each in inputs[0]]
        raise StopIteration

    norms = [each for each in model.modules() if isinstance(each, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
        torch.nn.init.uniform_(norm.weight, 0.7, 1.3)
        torch.nn.init.normal_(norm.bias, std=0.2)
    for block in model.modules():
        if getattr(block, "add", False):
            last = [each for each in block.modules() if isinstance(each, torch.nn.BatchNorm2d)][-1]
            last.weight.data.mul_(branches)
            last.bias.data.mul_(branches)
    hook = model.model[-1].register_forward_pre_hook(keep)
    model.train()
    with torch.no_grad():
        with contextlib.suppress(StopIteration):
            model(batch)
        model.eval()
        with contextlib.suppress(StopIteration):
            model(batch)
        hook.remove()
        head = model.model[-1].train()
        if not hasattr(head, "m"):  # its own normalisations
            head([each.clone() for each in kept["maps"]])
        head.eval()
    for norm in norms:
        norm.momentum = 0.03
    return kept["maps"]


def _spread(head, maps):
    """Scale the last layers: boxes of many sizes; best class scores from almost 0 to 0.9, of which
    one in 70 is above 0.25 (by quantiles: random networks have heavy tails)."""
    import torch

    def best(logits):
        return logits.amax(1).flatten()

    def fit(branches, low, high, scored=lambda logits: logits):
        with torch.no_grad():
            outputs = []
            for branch, x in zip(branches, maps, strict=True):
                plain = isinstance(branch, torch.nn.Conv2d)
                before = x if plain else branch[:-1](x)
                last = branch if plain else branch[-1]
                last.bias.zero_()
                last.bias.copy_(-last(before).mean((0, 2, 3)))
                outputs.append((last, scored(last(before)).flatten()))
            for last, values in outputs:
                gain = (high - low) / (values.max() - values.quantile(0.985))
                shift = low - gain * values.quantile(0.985)
                last.weight.mul_(gain)
                last.bias.mul_(gain).add_(shift)

    for name in ("", "one2one_"):
        if hasattr(head, f"{name}cv2"):
            fit(getattr(head, f"{name}cv2"), 2.0, 8.0, lambda logits: logits[:, :, ::4, ::4])
            fit(getattr(head, f"{name}cv3"), -1.1, 2.0, best)
    if hasattr(head, "m"):  # boxes, objectness and classes in one convolution
        mean = torch.tensor([0.0] * 4 + [-5.0] + [-5.0] * 80).repeat(3)
        top = torch.tensor([2.0] * 4 + [1.5] + [0.5] * 80).repeat(3)
        for branch, x in zip(head.m, maps, strict=True):
            with torch.no_grad():
                values = torch.nn.functional.conv2d(x, branch.weight).transpose(0, 1).flatten(1)
                middle = values.mean(1)
                gain = (top - mean) / (values.quantile(0.9995, 1) - middle)
                branch.weight.mul_(gain[:, None, None, None])
                branch.bias.copy_(mean - middle * gain)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [Path(each) for each in sys.argv[3:]])
