"""Whether a model's engine fits into the part of the GPU that serve_config.yaml gives it.

Ray adds fractions up and lets no more start than there is GPU; it knows nothing of memory. So each
replica compares what its bundle was measured to take with its own share: where every replica fits
its share, all of them fit the GPU, and one that does not says so before others run out.
"""

import math

from models import gpu
from models.bundle import Manifest
from models.errors import ConfigError

MIB = 1 << 20


def check(manifest: Manifest, gpus: float) -> None:
    """gpus: `resources.gpus` of the model; 1 or more: it has GPUs of its own.

    Raises:
        ConfigError: the bundle takes more memory than that share; the sentence says which would do.
    """
    card = gpu.find()
    if manifest.gpu is None or manifest.gpu.memory_mib is None or card is None or gpus >= 1:
        return
    refuse(manifest.checkpoint, manifest.gpu.memory_mib, gpus, gpu.total_memory(card) / MIB)


def refuse(checkpoint: str, needed_mib: float, gpus: float, total_mib: float) -> None:
    """As `check`, for a GPU of `total_mib`."""
    if needed_mib > gpus * total_mib:
        enough = math.ceil(needed_mib / total_mib * 100) / 100
        raise ConfigError(
            f"{checkpoint} takes {needed_mib:.0f} MiB of the GPU's memory, and `resources.gpus: "
            f"{gpus:g}` of {total_mib:.0f} MiB is {gpus * total_mib:.0f}: give it {enough:g}"
        )
