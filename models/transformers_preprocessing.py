"""What a Hugging Face directory's `preprocessor_config.json` says, against what a family serves.

Why: the reference follows that file and the served path does not read it, so a checkpoint that was
published with another size or normalisation would be served wrong until a campaign shows it.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import BundleError

PREPROCESSOR = "preprocessor_config.json"
IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of torchvision's classification models
IMAGENET_STD = (0.229, 0.224, 0.225)
BILINEAR = 2  # Pillow's number of the filter
# transformers' limit of the longer side where `size` is one number (`max_size`)
LONGEST = 1333


def check_preprocessing(
    files: Mapping[str, Path], *, size: Mapping[str, int] | None, imagenet: bool
) -> None:
    """Compares the file, where the directory has one; what it leaves out is transformers' default,
    which the families serve.

    size: the served size as transformers writes it, `{"shortest_edge": ..., "longest_edge": ...}`
    or `{"height": ..., "width": ...}`; None where the family serves another than this file's.
    imagenet: whether ImageNet's mean and deviation normalise the pixels.

    Raises:
        BundleError: the file is not readable, or says otherwise.
    """
    if PREPROCESSOR not in files:
        return
    try:
        published = json.loads(files[PREPROCESSOR].read_bytes())
        published_size = _size(published)
    except (OSError, ValueError, AttributeError) as error:
        raise BundleError(f"{PREPROCESSOR} is not a readable JSON object: {error}") from error
    served: dict[str, Any] = {
        "do_resize": True,
        "resample": BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": imagenet,
        "pad_size": None,
    }
    if imagenet:
        served |= {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}
    stated = {key: published[key] for key in served if key in published}
    if size is not None and published_size is not None:
        served["size"], stated["size"] = dict(size), published_size
    for key, found in stated.items():
        if not _same(found, served[key]):
            raise BundleError(f"{PREPROCESSOR} says {key} {found}; the family serves {served[key]}")


def _size(published: Mapping[str, Any]) -> Any:
    """`size` as transformers reads it today; in files of 2022 it is one number and `max_size`."""
    size = published.get("size")
    if isinstance(size, int):
        return {"shortest_edge": size, "longest_edge": published.get("max_size", LONGEST)}
    if isinstance(size, Mapping):
        return {key: value for key, value in size.items() if value is not None}
    return size


def _same(found: Any, served: Any) -> bool:
    if isinstance(served, float):
        return isinstance(found, float) and math.isclose(found, served, rel_tol=1e-6)
    if isinstance(served, tuple):
        return (
            isinstance(found, list) and len(found) == len(served) and all(map(_same, found, served))
        )
    return bool(found == served)
