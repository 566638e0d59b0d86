"""A Hugging Face detector checkpoint on disk: `config.json` and `model.safetensors`, read strictly.

Why strictly: transformers fills what is missing with random numbers and warns, so a file of another
architecture, a truncated one or a renamed layer would serve noise. Here each is one sentence.

`published_config` needs neither torch nor transformers; `load` needs both and runs only in the
exporting process (models/transformers_export.py) and in the reference's (models/references/).
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.errors import BundleError
from models.labels import same_label

CONFIG, WEIGHTS = "config.json", "model.safetensors"

# Blocks a stage, channels of the four stages and kind of block (He et al. 2015, table 1).
_RESNETS: dict[str, tuple[list[int], list[int], str]] = {
    "resnet18": ([2, 2, 2, 2], [64, 128, 256, 512], "basic"),
    "resnet34": ([3, 4, 6, 3], [64, 128, 256, 512], "basic"),
    "resnet50": ([3, 4, 6, 3], [256, 512, 1024, 2048], "bottleneck"),
    "resnet101": ([3, 4, 23, 3], [256, 512, 1024, 2048], "bottleneck"),
}
_TIMM_SETTINGS = ("backbone", "use_timm_backbone", "use_pretrained_backbone", "backbone_kwargs")
# timm's names of a ResNet's parts -> transformers' (torchvision's stem, stages, blocks)
_TIMM_KEYS = (
    (r"^conv1\.", r"embedder.embedder.convolution."),
    (r"^bn1\.", r"embedder.embedder.normalization."),
    (r"^layer(\d)\.(\d+)\.conv(\d)\.", r"encoder.stages.<\1>.layers.\2.layer.<\3>.convolution."),
    (r"^layer(\d)\.(\d+)\.bn(\d)\.", r"encoder.stages.<\1>.layers.\2.layer.<\3>.normalization."),
    (r"^layer(\d)\.(\d+)\.downsample\.0\.", r"encoder.stages.<\1>.layers.\2.shortcut.convolution."),
    (
        r"^layer(\d)\.(\d+)\.downsample\.1\.",
        r"encoder.stages.<\1>.layers.\2.shortcut.normalization.",
    ),
)


def published_config(
    files: Mapping[str, Path], model_type: str, labels: Sequence[str]
) -> dict[str, Any]:
    """`config.json`, checked against the family and the catalogue's labels.

    Raises:
        BundleError: a file is not there, it is not JSON, of another architecture, or has other
            labels; the sentence says which.
    """
    for name in (CONFIG, WEIGHTS):
        if name not in files:
            raise BundleError(f"the checkpoint has no {name}; it has {sorted(files)}")
    try:
        config = json.loads(files[CONFIG].read_bytes())
        found_type = config.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise BundleError(f"{CONFIG} is not a readable JSON object: {error}") from error
    if found_type != model_type:
        raise BundleError(
            f"{CONFIG} describes the architecture {found_type!r}; the family expects {model_type!r}"
        )
    try:
        names = {int(index): str(name) for index, name in config["id2label"].items()}
    except (KeyError, ValueError, AttributeError) as error:
        raise BundleError(f"{CONFIG} has no readable `id2label`: {error!r}") from error
    if sorted(names) != list(range(len(labels))):
        raise BundleError(
            f"{CONFIG} names {len(names)} labels with ids {min(names, default=0)} to "
            f"{max(names, default=0)}; the catalogue has {len(labels)}, from 0"
        )
    for index, label in enumerate(labels):
        if not same_label(names[index], label):
            raise BundleError(
                f"{CONFIG} names class {index} {names[index]!r}; the catalogue says {label!r}"
            )
    return dict(config)


def published_canvas(config: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width in pixels of the images a vision transformer was trained on (`image_size`).

    Raises:
        BundleError: the configuration does not say.
    """
    match config.get("image_size"):
        case [int(height), int(width)]:
            return height, width
        case other:
            raise BundleError(f"{CONFIG} says image_size {other}; it must be height and width")


def load(config: Mapping[str, Any], weights: Path) -> Any:
    """The detector (a `PreTrainedModel`) with exactly the published weights, in eval mode and with
    plain attention (no fused kernel, which would leave NaN guards in the exported graph).

    Raises:
        BundleError: the weights cannot be read, or are not those of this configuration.
    """
    import transformers
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state = load_file(weights)
    except (SafetensorError, OSError) as error:
        raise BundleError(f"{WEIGHTS} is damaged or truncated: {error}") from error
    described = dict(config)
    if _wants_timm(described):
        described = _without_timm(described)
        state = {_renamed(name): value for name, value in state.items()}
    try:
        parsed = transformers.AutoConfig.for_model(**described)
        architecture: Any = transformers.MODEL_FOR_OBJECT_DETECTION_MAPPING[type(parsed)]
        model, report = architecture.from_pretrained(
            None,
            config=parsed,
            state_dict=state,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported, and refused below
            attn_implementation="eager",
        )
    except Exception as error:  # transformers raises whatever its validation or torch does
        raise BundleError(f"transformers cannot build the checkpoint: {_line(error)}") from error
    # counters of training steps, which inference has no use for
    extra = {name for name in report["unexpected_keys"] if "num_batches_tracked" not in name}
    for problem, names in (
        ("has no weights for", report["missing_keys"]),
        ("has other shapes for", [entry[0] for entry in report["mismatched_keys"]]),
        ("has weights the architecture lacks,", extra),
    ):
        if names:
            named = ", ".join(sorted(names)[:3])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise BundleError(f"{WEIGHTS} {problem} {named}{more}")
    return model.eval()


def _wants_timm(config: Mapping[str, Any]) -> bool:
    """Whether the backbone is timm's: the published DETR checkpoints of 2020 to 2023."""
    nested = config.get("backbone_config")
    if nested:
        return bool(nested.get("model_type") == "timm_backbone")
    return bool(config.get("use_timm_backbone")) or config.get("backbone") is not None


def _without_timm(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same architecture over transformers' own ResNet (timm cannot be imported everywhere).

    Both put a bottleneck's stride on its 3x3 convolution, so the weights carry over.
    """
    nested = config.get("backbone_config") or {}
    name = nested.get("backbone") or config.get("backbone") or "resnet50"
    name = str(name).split(".")[0]
    if name not in _RESNETS or config.get("dilation"):
        dilated = " with dilation" if config.get("dilation") else ""
        raise BundleError(f"the backbone {name}{dilated} is not one of {', '.join(_RESNETS)}")
    depths, channels, block = _RESNETS[name]
    first = 2 if config.get("num_feature_levels", 1) > 1 else 4
    resnet = {
        "model_type": "resnet",
        "depths": depths,
        "hidden_sizes": channels,
        "layer_type": block,
        "out_features": [f"stage{stage}" for stage in range(first, 5)],
    }
    kept = {key: value for key, value in config.items() if key not in _TIMM_SETTINGS}
    return kept | {"backbone_config": resnet}


def _renamed(name: str) -> str:
    """A weight's name in transformers' ResNet, from timm's; other names stay."""
    prefix, found, rest = name.partition("backbone.conv_encoder.model.")
    if not found:
        prefix, found, rest = name.partition("backbone.model.")
    if not found:
        return name
    for pattern, replacement in _TIMM_KEYS:
        changed, count = re.subn(pattern, replacement, rest)
        if count:  # timm counts stages, convolutions and norms from 1, transformers from 0
            return prefix + found + re.sub(r"<(\d)>", lambda m: str(int(m[1]) - 1), changed)
    return name


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
