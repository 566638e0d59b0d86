"""YOLOS (HUST): a plain vision transformer with 100 detection tokens; no NMS.

Published form: a Hugging Face directory (`config.json`, `model.safetensors`) of
`YolosForObjectDetection`.

Images are stretched to the size the network was trained at, `image_size` of `config.json`, as the
reference system does. The directory's own image processor keeps the aspect (shorter side 800), so
its size, and only that, is not followed; neither here nor by the reference.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from models.criteria import MatchedCriteria
from models.detections import Detections
from models.errors import BundleError
from models.family import Reference
from models.placement import Placement, fixed
from models.precision import Islands
from models.queries import detections_of
from models.resize import Resized
from models.transformers_checkpoint import CONFIG, published_canvas, published_config
from models.transformers_export import export_transformers

MODEL_TYPE = "yolos"


class YOLOS:
    # The reference system's gate for YOLOS (FACTS: IoU >= 0.5, score within 0.05).
    criteria = MatchedCriteria(iou=0.5, score=0.05)
    islands = Islands()
    sizes = None

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        size = fixed(canvas)
        published = published_canvas(published_config(files, MODEL_TYPE, labels))
        if published != size:
            raise BundleError(
                f"{CONFIG} says image_size {list(published)}; the catalogue says {list(size)}"
            )
        return export_transformers(
            files,
            size,
            labels,
            model_type=MODEL_TYPE,
            network=f"{__name__}.network",
            size=None,  # the network's own, not the preprocessor's: see above
            imagenet=True,
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

        height, width = published_canvas(published_config(files, MODEL_TYPE, labels))
        return transformers_reference(
            files,
            labels,
            model_type=MODEL_TYPE,
            processor="YolosImageProcessorPil",
            settings={"size": {"height": height, "width": width}, "do_pad": False},
        )


FAMILY = YOLOS()
