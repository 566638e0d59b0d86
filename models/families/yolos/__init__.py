"""YOLOS (HUST): a plain vision transformer with 100 detection tokens; no NMS.

Published form: a Hugging Face directory (`config.json`, `model.safetensors`) of
`YolosForObjectDetection`.
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

MODEL_TYPE = "yolos"
CANVAS = (512, 864)  # height, width: the reference system's size, which the reference here follows


class YOLOS:
    # The reference system's gate for YOLOS (FACTS: IoU >= 0.5, score within 0.05).
    criteria = MatchedCriteria(iou=0.5, score=0.05)
    islands = Islands()

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        network = f"{__name__}.network"
        return export_transformers(
            files, fixed(canvas), labels, model_type=MODEL_TYPE, network=network
        )

    def place(self, source: tuple[int, int], canvas: tuple[int, int] | None) -> Resized:
        return Resized.stretched(source, fixed(canvas))

    def decode(
        self, outputs: Mapping[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        return detections_of(outputs, placed, threshold)

    def reference(self, files: Mapping[str, Path], labels: Sequence[str]) -> Reference:
        from models.transformers_reference import TransformersReference

        height, width = CANVAS
        return TransformersReference(
            files,
            labels,
            model_type=MODEL_TYPE,
            processor="YolosImageProcessorPil",
            settings={"size": {"height": height, "width": width}, "do_pad": False},
        )


FAMILY = YOLOS()
