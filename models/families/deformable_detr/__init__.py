"""Deformable DETR (SenseTime): 300 queries that sample four feature levels; no NMS.

Published form: a Hugging Face directory (`config.json`, `model.safetensors`) of
`DeformableDetrForObjectDetection`, with transformers' ResNet or, as first published, timm's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from models import transformers_export
from models.criteria import MatchedCriteria
from models.detections import Detections
from models.errors import BundleError
from models.family import Reference
from models.placement import Placement
from models.queries import detections_of
from models.resize import Resized

MODEL_TYPE = "deformable_detr"


class DeformableDETR:
    # The reference system publishes no gate for Deformable DETR: DETR's, until better is known.
    criteria = MatchedCriteria(iou=0.5, score=0.05)

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        _no_canvas(canvas)
        network = f"{__name__}.network"
        return transformers_export.export(
            files, None, labels, model_type=MODEL_TYPE, network=network
        )

    def place(self, source: tuple[int, int], canvas: tuple[int, int] | None) -> Resized:
        _no_canvas(canvas)
        return Resized.shortest_edge(source)

    def decode(
        self, outputs: Mapping[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        return detections_of(outputs, placed, threshold)

    def reference(self, files: Mapping[str, Path], labels: Sequence[str]) -> Reference:
        from models.transformers_reference import TransformersReference

        return TransformersReference(
            files, labels, model_type=MODEL_TYPE, processor="DeformableDetrImageProcessorPil", settings={}
        )


def _no_canvas(canvas: tuple[int, int] | None) -> None:
    """A padded canvas without DETR's pixel mask would misplace every box."""
    if canvas is not None:
        raise BundleError("this family's input follows the image's size: leave `canvas` out")


FAMILY = DeformableDETR()
