"""YOLOv8 (Ultralytics): anchor-free head, one class-wise sigmoid, class-aware NMS.

Published form: an ONNX export of Ultralytics 8.x with input `images` float32 [1, 3, H, W] RGB
0..1, output `output0` float32 [1, 4 + C, A]: centre x, centre y, width, height in canvas pixels,
then C class scores through the sigmoid; labels in the metadata `names`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from models.criteria import RankedCriteria
from models.detections import Detections
from models.errors import BundleError
from models.families.yolov8.published import published_labels
from models.family import Reference
from models.graph import GraphEditor
from models.letterbox import Letterbox
from models.nms import detections_of
from models.placement import Placement, fixed

NMS_IOU = 0.7  # Ultralytics 8.x `predict` and `val` defaults: iou=0.7, max_det=300
MAX_DETECTIONS = 300
STRIDES = (8, 16, 32)


class YOLOv8:
    # The reference system's gate for its YOLO families (FACTS: score < 0.005, sides < 1 px).
    criteria = RankedCriteria(score=0.005, side_px=1.0)

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        (path,) = files.values()
        height, width = fixed(canvas)
        anchors = sum((height // stride) * (width // stride) for stride in STRIDES)
        editor = GraphEditor(path)
        editor.require(
            inputs={"images": [1, 3, height, width]},
            outputs={"output0": [1, 4 + len(labels), anchors]},
        )
        found = published_labels(editor.model)
        if found != list(labels):
            raise BundleError(
                f"{path.name} names its labels {found}; the catalogue says {list(labels)}"
            )
        editor.take_uint8(swap_red_and_blue=False, divide_by=255)
        by_anchor = editor.add("Transpose", "output0", perm=[0, 2, 1])
        boxes = editor.corners(
            editor.columns(by_anchor, 0, 2, axis=2), editor.columns(by_anchor, 2, 4, axis=2)
        )
        scores = editor.columns("output0", 4, 4 + len(labels), axis=1)
        return editor.finish(boxes=boxes, class_scores=scores, class_axis=1)

    def place(self, source: tuple[int, int], canvas: tuple[int, int] | None) -> Letterbox:
        return Letterbox.centred(source, fixed(canvas))

    def decode(
        self, outputs: Mapping[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        chosen = outputs["scores"][0] >= np.float32(threshold)
        return detections_of(outputs, chosen, placed, iou=NMS_IOU, limit=MAX_DETECTIONS)

    def reference(self, files: Mapping[str, Path], labels: Sequence[str]) -> Reference:
        from models.families.yolov8.reference import OpenCVReference

        (path,) = files.values()
        return OpenCVReference(path)


FAMILY = YOLOv8()
