"""An architecture dict of Ultralytics (`yaml` of a checkpoint) as a list of layers.

The dict is data from outside: it is checked here, and only names that blocks.py and heads.py
know are accepted. No torch, so that a family can refuse a checkpoint without it.

Format (docs.ultralytics.com, "Model YAML configuration guide"): `backbone` and `head` are lists of
[from, repeats, module, arguments]; repeats are scaled by the depth factor, output channels are
capped at max_channels, scaled by the width factor and rounded up to a multiple of 8.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from models.errors import BundleError

Head = Literal["anchors", "distances", "one-to-one"]

# arguments: (output channels, ...)
SCALED = {"Conv", "C3", "C2f", "C3k2", "SPPF", "C2PSA", "PSA", "SCDown", "C2fCIB"}
# of those, the ones that take the number of repeats as an argument
REPEATING = {"C3", "C2f", "C3k2", "C2PSA", "C2fCIB"}
# blocks since which the class branch of the head is depth-wise (YOLO11; ultralytics 8.3 `legacy`)
DEPTHWISE_SINCE = {"C3k2", "C2fCIB"}


@dataclass(frozen=True)
class Layer:
    """sources: indices of the layers it reads, -1 the image; kind: a class of blocks.py;
    arguments: its positional arguments; repeats: how many of it in a row; channels and stride: of
    its output, the stride in pixels of the canvas."""

    sources: tuple[int, ...]
    kind: str
    arguments: tuple[Any, ...]
    repeats: int
    channels: int
    stride: int


@dataclass(frozen=True)
class Plan:
    """The network: its layers without the head, then the head.

    anchors: per output, width and height of each anchor in canvas pixels; empty without anchors.
    """

    layers: tuple[Layer, ...]
    head: Head
    outputs: tuple[int, ...]
    classes: int
    depthwise: bool
    anchors: tuple[tuple[float, ...], ...]

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.layers[index].stride for index in self.outputs)

    @property
    def channels(self) -> tuple[int, ...]:
        return tuple(self.layers[index].channels for index in self.outputs)

    @property
    def kinds(self) -> set[str]:
        return {layer.kind for layer in self.layers}


def plan_of(architecture: Mapping[str, Any]) -> Plan:
    """The plan of a `yaml` dict.

    Raises:
        BundleError: it is not one, or it needs a block that is not there.
    """
    try:
        return _plan(architecture)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise BundleError(f"the architecture dict is not readable: {error!r}") from error


def _plan(architecture: Mapping[str, Any]) -> Plan:
    depth, width, limit, scale = _factors(architecture)
    words = {key: architecture.get(key) for key in ("nc", "anchors")} | {"None": None}
    rows: Sequence[Any] = [*architecture["backbone"], *architecture["head"]]
    layers: list[Layer] = []
    for index, (source, repeats, kind, arguments) in enumerate(rows):
        sources = tuple(
            each if each >= 0 else index + each
            for each in ([source] if isinstance(source, int) else source)
        )
        arguments = [words.get(each, each) if isinstance(each, str) else each for each in arguments]
        if index == len(rows) - 1:
            return _with_head(tuple(layers), sources, kind, arguments, architecture)
        if any(each >= index for each in sources):
            raise ValueError(f"layer {index} reads a later layer")
        repeats = max(round(repeats * depth), 1) if repeats > 1 else repeats
        kind = kind.removeprefix("nn.")
        taken = [_output(layers, each) for each in sources]
        channels, stride = taken[0]
        if kind in SCALED:
            first, (channels, *rest) = channels, arguments
            channels = math.ceil(min(channels, limit) * width / 8) * 8
            if kind == "C3k2" and scale in ("m", "l", "x"):  # the larger YOLO11 use C3k throughout
                rest[:1] = [True]
            if kind in REPEATING:
                rest, repeats = [repeats, *rest], 1
            arguments = [first, channels, *rest]
            if kind in ("Conv", "SCDown"):
                stride *= arguments[3] if len(arguments) > 3 else 1
        elif kind == "Upsample":
            if arguments[0] is not None or arguments[2] != "nearest":
                raise BundleError(f"layer {index}: Upsample {arguments} is not supported")
            arguments = [arguments[1]]
            stride //= arguments[0]
        elif kind == "Concat":
            if arguments != [1] or len({each for _, each in taken}) != 1:
                raise BundleError(f"layer {index}: Concat {arguments} is not supported")
            channels, arguments = sum(each for each, _ in taken), []
        else:
            raise BundleError(f"layer {index}: there is no block {kind!r}")
        layers.append(Layer(sources, kind, tuple(arguments), repeats, channels, stride))
    raise BundleError("the architecture dict has no layers")


def _with_head(
    layers: tuple[Layer, ...],
    outputs: tuple[int, ...],
    kind: str,
    arguments: list[Any],
    architecture: Mapping[str, Any],
) -> Plan:
    anchors: Sequence[Sequence[float]] = ()
    head: Head
    if kind == "Detect" and len(arguments) == 2:
        head, anchors = "anchors", arguments[1]
    elif kind == "Detect" and not architecture.get("end2end"):
        head = "distances"
    elif kind == "v10Detect":
        head = "one-to-one"
    else:
        raise BundleError(f"there is no head {kind!r} with arguments {arguments}")
    if architecture.get("reg_max", 16) != 16:
        raise BundleError(f"reg_max {architecture['reg_max']} is not supported")
    return Plan(
        layers=layers,
        head=head,
        outputs=outputs,
        classes=int(arguments[0]),
        depthwise=head == "one-to-one" or any(each.kind in DEPTHWISE_SINCE for each in layers),
        anchors=tuple(tuple(float(each) for each in pairs) for pairs in anchors),
    )


def _factors(architecture: Mapping[str, Any]) -> tuple[float, float, float, str | None]:
    """Depth factor, width factor, greatest number of channels, name of the scale."""
    if scales := architecture.get("scales"):
        scale = architecture.get("scale") or next(iter(scales))
        depth, width, limit = scales[scale]
        return depth, width, limit, scale
    depth, width = (architecture.get(f"{each}_multiple", 1.0) for each in ("depth", "width"))
    return depth, width, math.inf, None


def _output(layers: list[Layer], index: int) -> tuple[int, int]:
    """Channels and stride of a layer's output, or of the image."""
    return (layers[index].channels, layers[index].stride) if index >= 0 else (3, 1)
