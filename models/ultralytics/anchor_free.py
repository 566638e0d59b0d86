"""The family of YOLOv8 and YOLO11: anchor-free head, one class-wise sigmoid, class-aware NMS.

A checkpoint is one file: Ultralytics' archive (`.pt`) or its ONNX export (`.onnx`).
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
from models.letterbox import Letterbox
from models.nms import detections_of
from models.placement import Placement, fixed
from models.precision import Islands
from models.ultralytics.archive import read_archive
from models.ultralytics.convert import converted
from models.ultralytics.onnx_form import (
    anchor_free_graph,
    published_labels,
    require_labels,
)
from models.ultralytics.plan import plan_of

NMS_IOU = 0.7  # Ultralytics 8.x `predict` and `val` defaults: iou=0.7, max_det=300
MAX_DETECTIONS = 300


class AnchorFree:
    """block: the building block that tells this architecture's archives from the other's.

    islands: what stays FP32 in an FP16 bundle.
    """

    # The reference system's gate for its YOLO families (FACTS: score < 0.005, sides < 1 px).
    criteria = RankedCriteria(score=0.005, side_px=1.0)
    sizes = None

    def __init__(self, block: str, islands: Islands) -> None:
        self._block = block
        self.islands = islands

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        (path,) = files.values()
        size = fixed(canvas)
        if path.suffix == ".onnx":
            graph = anchor_free_graph(path, size, len(labels))
            require_labels(published_labels(graph), labels, path.name)
            return graph
        archive = read_archive(path)
        plan = plan_of(archive.architecture)
        if plan.head != "distances" or self._block not in plan.kinds:
            raise BundleError(
                f"{path.name} is another architecture: its head predicts {plan.head} and its "
                f"blocks are {', '.join(sorted(plan.kinds))}; this family's are {self._block} "
                f"and distances"
            )
        require_labels(archive.names, labels, path.name)
        with converted(path, size) as published:
            return folded(anchor_free_graph(published, size, len(labels)))

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
        from models.ultralytics.opencv_reference import OpenCVReference

        (path,) = files.values()
        if path.suffix == ".onnx":
            return OpenCVReference(path)
        return ultralytics_reference(path, fixed(canvas), labels)
