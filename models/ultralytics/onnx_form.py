"""Ultralytics' ONNX export form as a bundle's graph, and what it says of itself.

Form of YOLOv8 and 11: input `images` float32 [1, 3, H, W] RGB 0..1, output `output0` float32
[1, 4 + C, A]: centre x, centre y, width, height in canvas pixels, then C class scores through the
sigmoid; labels in the metadata `names`.
"""

import ast
from collections.abc import Sequence
from pathlib import Path

import onnx

from models.errors import BundleError
from models.graph import GraphEditor
from models.precision import Islands

STRIDES = (8, 16, 32)
# The input's scaling and the first five stages: rounding there moves boxes most, since everything
# behind adds to it (measured: docs/decisions/half-precision.md). The expectation over 16 distances,
# published as a convolution: 2^-7 of a cell coarse in half, a quarter of a pixel at stride 32.
HALF_ISLANDS = Islands(names=(r"^detserve/", r"\bmodel\.[0-4][./]", r"\bdfl\b"))


def anchor_count(canvas: tuple[int, int]) -> int:
    """Cells of all three outputs."""
    height, width = canvas
    return sum((height // stride) * (width // stride) for stride in STRIDES)


def published_labels(model: onnx.ModelProto) -> list[str]:
    """Labels by class id, from the metadata entry `names`.

    The entry is the repr of a dict whose keys may stand in string order (0, 1, 10, 2, ...), so
    they are sorted as integers.

    Raises:
        BundleError: there is no such entry, or its ids have gaps.
    """
    entries = {entry.key: entry.value for entry in model.metadata_props}
    try:
        names = {int(key): str(value) for key, value in ast.literal_eval(entries["names"]).items()}
    except (KeyError, ValueError, SyntaxError, AttributeError) as error:
        raise BundleError(f"the ONNX metadata has no readable `names`: {error!r}") from error
    if sorted(names) != list(range(len(names))):
        raise BundleError(f"the label ids in the ONNX metadata have gaps: {sorted(names)}")
    return [names[index] for index in range(len(names))]


def require_labels(found: Sequence[str], labels: Sequence[str], where: str) -> None:
    """Refuse a checkpoint whose labels are not the catalogue's.

    Raises:
        BundleError: with both lists.
    """
    if list(found) != list(labels):
        raise BundleError(
            f"{where} names its labels {list(found)}; the catalogue says {list(labels)}"
        )


def anchor_free_graph(path: Path, canvas: tuple[int, int], classes: int) -> onnx.ModelProto:
    """The bundle's graph (models/graph.py) of a file in that form."""
    editor = GraphEditor(path)
    editor.require(
        inputs={"images": [1, 3, *canvas]},
        outputs={"output0": [1, 4 + classes, anchor_count(canvas)]},
    )
    editor.take_uint8(swap_red_and_blue=False, divide_by=255)
    by_anchor = editor.add("Transpose", "output0", perm=[0, 2, 1])
    boxes = editor.corners(
        editor.columns(by_anchor, 0, 2, axis=2), editor.columns(by_anchor, 2, 4, axis=2)
    )
    scores = editor.columns("output0", 4, 4 + classes, axis=1)
    return editor.finish(boxes=boxes, class_scores=scores, class_axis=1)
