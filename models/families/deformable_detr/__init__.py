"""Deformable DETR (SenseTime): 300 queries that sample four feature levels; no NMS.

Published form: a Hugging Face directory (`config.json`, `model.safetensors`) of
`DeformableDetrForObjectDetection`, with transformers' ResNet or, as first published, timm's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from models.criteria import MatchedCriteria
from models.detections import Detections
from models.family import Reference
from models.placement import Placement
from models.precision import Islands
from models.queries import detections_of
from models.resize import LONGEST, SHORTEST, SHORTEST_EDGE_SIZES, Resized, without_canvas
from models.transformers_export import export_transformers

MODEL_TYPE = "deformable_detr"


class DeformableDETR:
    # The reference system publishes no gate for Deformable DETR: DETR's, until better is known.
    criteria = MatchedCriteria(iou=0.5, score=0.05)
    # What belongs to no published module: position encodings, sampling points and their sums. In
    # half, angles are coarse, and TensorRT cannot infer the shape of a range that is cast to it.
    islands = Islands(names=(r"^/",))
    sizes = SHORTEST_EDGE_SIZES

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        without_canvas(canvas)
        return export_transformers(
            files,
            None,
            labels,
            model_type=MODEL_TYPE,
            network=f"{__name__}.network",
            size={"shortest_edge": SHORTEST, "longest_edge": LONGEST},
            imagenet=True,
        )

    def place(self, source: tuple[int, int], canvas: tuple[int, int] | None) -> Resized:
        without_canvas(canvas)
        return Resized.shortest_edge(source)

    def decode(
        self, outputs: Mapping[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        return detections_of(outputs, placed, threshold)

    def reference(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> Reference:
        from models.references.published import transformers_reference

        return transformers_reference(
            files,
            labels,
            model_type=MODEL_TYPE,
            processor="DeformableDetrImageProcessorPil",
            settings={},
        )


FAMILY = DeformableDETR()
