"""RT-DETR (Baidu): a hybrid encoder picks 300 queries; a pair of query and class a detection.

Published form: a Hugging Face directory (`config.json`, `model.safetensors`) of
`RTDetrForObjectDetection`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from models.criteria import MatchedCriteria
from models.detections import Detections
from models.family import Reference
from models.placement import Placement, fixed
from models.precision import Islands
from models.queries import detections_of
from models.resize import Resized
from models.transformers_export import export_transformers

MODEL_TYPE = "rt_detr"


class RTDETR:
    # The reference system publishes no gate for RT-DETR: DETR's, until better is known.
    criteria = MatchedCriteria(iou=0.5, score=0.05)
    # where to sample: in half, a place on the finest level is 0.03 of a cell coarse
    islands = Islands(names=(r"encoder_attn\.attn/",))
    sizes = None

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        height, width = fixed(canvas)
        return export_transformers(
            files,
            (height, width),
            labels,
            model_type=MODEL_TYPE,
            network=f"{__name__}.network",
            size={"height": height, "width": width},
            imagenet=False,
        )

    def place(self, source: tuple[int, int], canvas: tuple[int, int] | None) -> Resized:
        return Resized.stretched(source, fixed(canvas))

    def decode(
        self, outputs: Mapping[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        return detections_of(outputs, placed, threshold)

    def reference(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> Reference:
        from models.references.published import transformers_reference

        return transformers_reference(
            files, labels, model_type=MODEL_TYPE, processor="RTDetrImageProcessorPil", settings={}
        )


FAMILY = RTDETR()
