"""How much GPU memory a process takes that serves a bundle: measured in one, at build.

A process of its own, because CUDA's part (its context, the libraries' kernels) is hundreds of
megabytes and counts once a replica, and because the building process has more in memory than a
replica will. The driver says what all processes use together, so measurements wait for each other;
another model that starts or stops on the GPU meanwhile still falls into the figure.

Runs as `python -m models.engine_memory FOLDER`, which prints bytes.
"""

import subprocess
import sys
from pathlib import Path

import filelock
import numpy as np

from models import gpu
from models.bundle import TRIAL_SIZE, Bundle
from models.errors import BundleError
from models.home import home

_ROOT = Path(__file__).resolve().parents[1]


def measured_mib(folder: Path) -> int:
    """GPU memory in MiB, of the bundle in `folder` loaded and every slot used.

    Raises:
        BundleError: the bundle does not run.
    """
    home().mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(home() / "gpu-memory.lock"):
        done = subprocess.run(
            [sys.executable, "-m", "models.engine_memory", str(folder)],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        last = next(iter(done.stderr.strip().splitlines()[-1:]), "it gave no reason")
        raise BundleError(f"measuring the GPU memory of {folder.parent.name} failed: {last}")
    return round(int(done.stdout.splitlines()[-1]) / 2**20)


def _main(folder: Path) -> None:
    found = gpu.find()
    if found is None:
        raise BundleError("there is no NVIDIA GPU")
    before = gpu.used_memory(found)
    bundle = Bundle.open(folder)
    size = bundle.manifest.canvas or TRIAL_SIZE
    _, canvas = bundle.place(np.zeros((*size, 3), np.uint8))
    engine = bundle.engine(threads=1)
    for slot in range(engine.slots):
        engine.infer(canvas, slot)
    print(max(0, gpu.used_memory(found) - before), flush=True)
    engine.close()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
