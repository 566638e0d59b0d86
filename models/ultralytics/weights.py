"""Reads the weights of a Hugging Face directory by the names they have in an archive."""

import re
from pathlib import Path

import numpy as np

from models.errors import BundleError, SourceError


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The state dict in a safetensors file: name -> array.

    A wrapper that was published with the model puts `model.` in front of names that begin with
    `model.` already: one is kept.

    Raises:
        BundleError: safetensors is missing.
        SourceError: the file is truncated or not of that format.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError as error:
        raise BundleError('safetensors is missing: pip install "detserve[export]"') from error
    try:
        state: dict[str, np.ndarray] = load_file(path)
    except (SafetensorError, KeyError, OSError) as error:
        raise SourceError(f"{path.name} is not a whole safetensors file: {error}") from error
    return {re.sub(r"^(model\.)+", "model.", name): value for name, value in state.items()}
