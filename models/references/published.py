"""The two published implementations as references: transformers', and ultralytics'.

Only the published files go over to them; model, preprocessing and decoding are the packages' own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.references.process import ProcessReference
from models.transformers_checkpoint import CONFIG, WEIGHTS, published_config
from models.transformers_preprocessing import PREPROCESSOR


def transformers_reference(
    files: Mapping[str, Path],
    labels: Sequence[str],
    *,
    model_type: str,
    processor: str,
    settings: Mapping[str, Any],
) -> ProcessReference:
    """A Hugging Face directory in transformers' own image processor, model and post-processing.

    processor: transformers' class of the image processor (the Pillow backend). Its settings are
    the directory's `preprocessor_config.json`, where there is one, else the class's own.
    settings: those of the processor that the family changes.
    labels: by class id.

    Raises:
        BundleError: the files cannot be loaded, or the environment cannot run them.
    """
    published_config(files, model_type, labels)
    asked = {
        "config": str(files[CONFIG]),
        "weights": str(files[WEIGHTS]),
        "preprocessor": str(files[PREPROCESSOR]) if PREPROCESSOR in files else None,
        "processor": processor,
        "settings": dict(settings),
    }
    return ProcessReference(_beside("transformers_pipeline.py"), asked, labels)


def ultralytics_reference(
    checkpoint: Path,
    canvas: tuple[int, int],
    labels: Sequence[str],
    architecture: Mapping[str, Any] | None = None,
) -> ProcessReference:
    """An archive or safetensors in ultralytics' own letterbox, model and NMS.

    canvas: height and width to letterbox to.
    labels: where the checkpoint names none itself.
    architecture: for safetensors, which carry none.

    Raises:
        BundleError: the checkpoint cannot be loaded, or the environment cannot run it.
        SourceError: the file is damaged or refused.
    """
    asked = {"checkpoint": str(checkpoint), "canvas": canvas, "architecture": architecture}
    return ProcessReference(_beside("ultralytics_pipeline.py"), asked, labels)


def _beside(name: str) -> Path:
    return Path(__file__).with_name(name)
