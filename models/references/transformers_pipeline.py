"""The published pipeline of a Hugging Face directory: transformers' image processor, model and
post-processing.

Runs in worker.py, which needs torch and transformers. Only reading the checkpoint is shared with
the served path: what transformers would fill with random numbers is refused there too.
"""

# mypy: disable-error-code="import-not-found,import-untyped,unused-ignore"

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from models.errors import DamagedImage
from models.transformers_checkpoint import load as load_model


def load(asked: Mapping[str, Any]) -> tuple[None, Callable[[bytes, float], dict[str, Any]]]:
    """asked: the files `config`, `weights` and `preprocessor` (or null), the class `processor` and
    the `settings` changed in it. Returns no labels: those of `config` were compared before."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count() or 1)  # Ray tells what its actors start to use one
    model = load_model(json.loads(Path(asked["config"]).read_bytes()), Path(asked["weights"]))
    described: dict[str, Any] = {}
    if asked["preprocessor"] is not None:
        described = json.loads(Path(asked["preprocessor"]).read_bytes())
    processor = getattr(transformers, asked["processor"]).from_dict(described | asked["settings"])

    def detect(image: bytes, threshold: float) -> dict[str, Any]:
        with torch.no_grad():
            return detections(model, processor, upright(image), threshold)

    return None, detect


def detections(
    model: Any, processor: Any, picture: Image.Image, threshold: float
) -> dict[str, Any]:
    """By falling score; boxes are cut at the image's edges, which transformers' own
    post-processing leaves to the caller."""
    inputs = processor(images=picture, return_tensors="pt")
    (found,) = processor.post_process_object_detection(
        model(**inputs), threshold=threshold, target_sizes=[(picture.height, picture.width)]
    )
    order = found["scores"].argsort(descending=True, stable=True)
    limits = np.array([picture.width, picture.height] * 2, np.float32)
    return {
        "boxes": found["boxes"][order].numpy().clip(0, limits).tolist(),
        "scores": found["scores"][order].tolist(),
        "class_ids": found["labels"][order].tolist(),
        "height": picture.height,
        "width": picture.width,
    }


def upright(image: bytes) -> Image.Image:
    """The decoded image, RGB, turned as its EXIF orientation says.

    Raises:
        DamagedImage: Pillow cannot decode it.
    """
    try:
        return ImageOps.exif_transpose(Image.open(io.BytesIO(image))).convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow's decoders raise
        raise DamagedImage("Pillow cannot decode the image") from error
