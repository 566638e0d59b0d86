"""YOLOX (Megvii): anchor-free head with objectness, top-left letterbox, BGR 0..255.

Published form: Megvii's ONNX export without decoding: input `images` float32 [1, 3, H, W] BGR
0..255, output `output` float32 [1, A, 5 + C]: per anchor the raw centre and log size on the grids
of strides 8, 16 and 32, then objectness and class scores through the sigmoid.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from models.criteria import RankedCriteria
from models.detections import Detections
from models.family import Reference
from models.graph import GraphEditor
from models.letterbox import Letterbox
from models.nms import detections_of
from models.placement import Placement, fixed
from models.precision import Islands

NMS_IOU = 0.65  # YOLOX `tools/eval.py` on COCO: nmsthre=0.65
MAX_DETECTIONS = 300
STRIDES = (8, 16, 32)


class YOLOX:
    # The reference system's gate for its YOLO families (FACTS: score < 0.005, sides < 1 px).
    criteria = RankedCriteria(score=0.005, side_px=1.0)
    islands = Islands()
    sizes = None

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        (path,) = files.values()
        height, width = fixed(canvas)
        origins, strides = _grid(height, width)
        editor = GraphEditor(path)
        editor.require(
            inputs={"images": [1, 3, height, width]},
            outputs={"output": [1, origins.shape[1], 5 + len(labels)]},
        )
        editor.take_uint8(swap_red_and_blue=True, divide_by=None)
        stride = editor.constant(strides)
        cells = editor.add("Add", editor.columns("output", 0, 2, axis=2), editor.constant(origins))
        sizes = editor.add("Exp", editor.columns("output", 2, 4, axis=2))
        boxes = editor.corners(editor.add("Mul", cells, stride), editor.add("Mul", sizes, stride))
        scores = editor.add(
            "Mul",
            editor.columns("output", 4, 5, axis=2),
            editor.columns("output", 5, 5 + len(labels), axis=2),
        )
        return editor.finish(boxes=boxes, class_scores=scores, class_axis=2)

    def place(self, source: tuple[int, int], canvas: tuple[int, int] | None) -> Letterbox:
        return Letterbox.top_left(source, fixed(canvas))

    def decode(
        self, outputs: Mapping[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        chosen = outputs["scores"][0] > np.float32(threshold)
        return detections_of(outputs, chosen, placed, iou=NMS_IOU, limit=MAX_DETECTIONS)

    def reference(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> Reference:
        from models.families.yolox.reference import OpenCVReference

        (path,) = files.values()
        return OpenCVReference(path, labels)


def _grid(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Cell origins float32 [1, A, 2] as (column, row), and strides float32 [1, A, 1]."""
    origins, strides = [], []
    for stride in STRIDES:
        rows, columns = np.mgrid[: height // stride, : width // stride]
        origins.append(np.stack([columns, rows], axis=-1).reshape(-1, 2))
        strides.append(np.full((rows.size, 1), stride))
    return (
        np.concatenate(origins).astype(np.float32)[None],
        np.concatenate(strides).astype(np.float32)[None],
    )


FAMILY = YOLOX()
