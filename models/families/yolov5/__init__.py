"""YOLOv5 (Ultralytics, 6.0 and later): anchors and objectness, class-aware NMS.

A checkpoint is the published archive (`.pt`) with the older head: 255 channels an output for 80
classes. Archives of the newer package (`yolov5nu.pt`) have YOLOv8's head and are refused: what
NMS reads from one layout means something else in the other.

Graph before editing: `output0` float32 [1, A, 5 + C]: centre x, centre y, width, height in canvas
pixels, objectness, C class scores, all through the sigmoid.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from models.criteria import RankedCriteria
from models.detections import Detections
from models.errors import BundleError
from models.family import Reference
from models.fold import folded
from models.graph import GraphEditor
from models.letterbox import Letterbox
from models.nms import detections_of
from models.placement import Placement, fixed
from models.ultralytics.archive import read_archive
from models.ultralytics.convert import converted
from models.ultralytics.onnx_form import HALF_ISLANDS, anchor_count, require_labels
from models.ultralytics.plan import plan_of

NMS_IOU = 0.7  # the checkpoint table (FACTS, section 1); YOLOv5's own detect.py has 0.45
MAX_DETECTIONS = 300


class YOLOv5:
    # The reference system's gate for its YOLO families (FACTS: score < 0.005, sides < 1 px).
    criteria = RankedCriteria(score=0.005, side_px=1.0)
    islands = HALF_ISLANDS
    sizes = None

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        (path,) = files.values()
        size = fixed(canvas)
        archive = read_archive(path)
        plan = plan_of(archive.architecture)
        if plan.head != "anchors":
            raise BundleError(
                f"{path.name} is another architecture: its head predicts {plan.head}, this "
                f"family's has anchors and objectness"
            )
        require_labels(archive.names, labels, path.name)
        cells = anchor_count(size) * len(plan.anchors[0]) // 2
        classes = len(labels)
        with converted(path, size) as published:
            editor = GraphEditor(published)
        editor.require(
            inputs={"images": [1, 3, *size]}, outputs={"output0": [1, cells, 5 + classes]}
        )
        editor.take_uint8(swap_red_and_blue=False, divide_by=255)
        boxes = editor.corners(
            editor.columns("output0", 0, 2, axis=2), editor.columns("output0", 2, 4, axis=2)
        )
        scores = editor.add(
            "Mul",
            editor.columns("output0", 4, 5, axis=2),
            editor.columns("output0", 5, 5 + classes, axis=2),
        )
        return folded(editor.finish(boxes=boxes, class_scores=scores, class_axis=2))

    def place(self, source: tuple[int, int], canvas: tuple[int, int] | None) -> Letterbox:
        return Letterbox.centred(source, fixed(canvas))

    def decode(
        self, outputs: Mapping[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        chosen = outputs["scores"][0] >= np.float32(threshold)
        return detections_of(outputs, chosen, placed, iou=NMS_IOU, limit=MAX_DETECTIONS)

    def reference(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> Reference:
        from models.references.published import ultralytics_reference

        (path,) = files.values()
        return ultralytics_reference(path, fixed(canvas), labels)


FAMILY = YOLOv5()
