"""YOLOv10 (Tsinghua): one-to-one head, no NMS; the selection is in the graph.

A checkpoint is a Hugging Face directory: `model.safetensors` and, where published, `config.json`
with the labels (`names`). Only the head's one-to-one branches are exported; the one-to-many
branches beside them are for training and need NMS.

Selection (YOLOv10's `postprocess`): the 300 anchors whose best class scores highest, then the 300
highest of all their class scores; an anchor may appear with several classes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from models.criteria import RankedCriteria
from models.detections import Detections
from models.errors import BundleError, SourceError
from models.families.yolov10.architectures import architecture_of
from models.family import Reference
from models.fold import folded
from models.graph import GraphEditor
from models.letterbox import Letterbox
from models.placement import Placement, fixed
from models.ultralytics.convert import converted
from models.ultralytics.onnx_form import HALF_ISLANDS, anchor_count, require_labels
from models.ultralytics.plan import plan_of
from models.ultralytics.weights import read_safetensors

WEIGHTS, CONFIG = "model.safetensors", "config.json"
MAX_DETECTIONS = 300


class YOLOv10:
    # The reference system's gate for its YOLO families (FACTS: score < 0.005, sides < 1 px).
    criteria = RankedCriteria(score=0.005, side_px=1.0)
    islands = HALF_ISLANDS
    sizes = None

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        size = fixed(canvas)
        config = _config(files)
        if (names := config.get("names")) is not None:
            require_labels([name for _, name in _by_id(names)], labels, CONFIG)
        architecture = _architecture(files, config, len(labels))
        head = plan_of(architecture).head
        if head != "one-to-one":
            raise BundleError(f"{CONFIG}: its architecture's head predicts {head}")
        anchors, classes = anchor_count(size), len(labels)
        with converted(files[WEIGHTS], size, architecture) as published:
            editor = GraphEditor(published)
        editor.require(
            inputs={"images": [1, 3, *size]}, outputs={"output0": [1, 4 + classes, anchors]}
        )
        editor.take_uint8(swap_red_and_blue=False, divide_by=255)
        by_anchor = editor.add("Transpose", "output0", perm=[0, 2, 1])
        return folded(_select(editor, by_anchor, anchors, classes))

    def place(self, source: tuple[int, int], canvas: tuple[int, int] | None) -> Letterbox:
        return Letterbox.centred(source, fixed(canvas))

    def decode(
        self, outputs: Mapping[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        chosen = outputs["scores"][0] >= np.float32(threshold)
        return Detections(  # the graph's last TopK has sorted them by falling score
            boxes=placed.to_source(outputs["boxes"][0][chosen]),
            scores=outputs["scores"][0][chosen],
            class_ids=outputs["class_ids"][0][chosen],
            height=placed.source_height,
            width=placed.source_width,
        )

    def reference(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> Reference:
        from models.references.published import ultralytics_reference

        architecture = _architecture(files, _config(files), len(labels))
        return ultralytics_reference(files[WEIGHTS], fixed(canvas), labels, architecture)


def _select(editor: GraphEditor, by_anchor: str, anchors: int, classes: int) -> onnx.ModelProto:
    """The two selections.

    by_anchor: [1, A, 4 + C], corners in canvas pixels and class scores. The flat index over the
    selected anchors' scores is anchor-major: anchor = index // C, class = index % C.
    """
    count = editor.constant(np.array([min(MAX_DETECTIONS, anchors)], np.int64))
    best = editor.maximum(editor.columns(by_anchor, 4, 4 + classes, axis=2), axis=2)
    _, chosen = editor.add_pair("TopK", best, count, axis=1, largest=1, sorted=1)
    flat = editor.constant(np.array([-1], np.int64))
    rows = editor.add("Gather", by_anchor, editor.add("Reshape", chosen, flat), axis=1)
    row = editor.constant(np.array([1, -1], np.int64))
    scores = editor.add("Reshape", editor.columns(rows, 4, 4 + classes, axis=2), row)
    scores, places = editor.add_pair("TopK", scores, count, axis=1, largest=1, sorted=1)
    width = editor.constant(np.array(classes, np.int64))
    anchor = editor.add("Div", places, width)
    class_id = editor.add("Sub", places, editor.add("Mul", anchor, width))
    boxes = editor.add(
        "Gather", editor.columns(rows, 0, 4, axis=2), editor.add("Reshape", anchor, flat), axis=1
    )
    return editor.name_outputs(boxes, scores, editor.add("Cast", class_id, to=TensorProto.INT32))


def _config(files: Mapping[str, Path]) -> dict[str, Any]:
    """config.json, or nothing where the checkpoint has none."""
    if CONFIG not in files:
        return {}
    try:
        config = json.loads(files[CONFIG].read_bytes())
    except ValueError as error:
        raise SourceError(f"{CONFIG} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise SourceError(f"{CONFIG} is not a JSON object")
    return config


def _by_id(names: object) -> list[tuple[int, str]]:
    """Labels with their ids in order: JSON makes the ids strings, which sort 0, 1, 10, 2."""
    try:
        pairs = names.items() if isinstance(names, dict) else enumerate(names)  # type: ignore[arg-type]
        return sorted((int(key), str(value)) for key, value in pairs)
    except (TypeError, ValueError) as error:
        raise SourceError(f"{CONFIG}: `names` are not labels by class id: {error}") from error


def _architecture(
    files: Mapping[str, Path], config: Mapping[str, Any], classes: int
) -> dict[str, Any]:
    """The published architecture dict where config.json has one, else by the width of the first
    convolution."""
    if WEIGHTS not in files:
        raise SourceError(f"a YOLOv10 checkpoint needs {WEIGHTS}; there are {sorted(files)}")
    if isinstance(published := config.get("yaml"), dict):
        return published
    first = read_safetensors(files[WEIGHTS]).get("model.0.conv.weight")
    if first is None:
        raise BundleError(f"{WEIGHTS} has no model.0.conv.weight: it is not a YOLOv10 checkpoint")
    return architecture_of(width=first.shape[0], classes=classes)


FAMILY = YOLOv10()
