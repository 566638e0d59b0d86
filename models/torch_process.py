"""Commands of this project in a process that may import torch.

Why a process: torch and onnxruntime in one can end in a oneMKL error, and serving needs no torch.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from models import errors
from models.errors import BundleError

# what such a command may end with: its last line is then `<class>: <sentence>`
KINDS = (errors.BundleError, errors.SourceError)


def run_with_torch(module: str, arguments: Sequence[str]) -> None:
    """Runs `python -m MODULE ARGUMENTS`.

    Raises:
        BundleError, SourceError: as the command ended; BundleError too where it ended otherwise.
    """
    ended = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=torch_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        name, _, sentence = said[-1].partition(": ")
        for kind in KINDS:
            if name == kind.__name__:
                raise kind(sentence)
        raise BundleError(f"the export ended: {said[-1]}")


def torch_environment() -> dict[str, str]:
    """The environment of a process that imports torch and transformers, and fetches nothing."""
    here = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    return os.environ | {
        "PYTHONPATH": path,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        # its asserts cannot be exported (transformers 5: torch_compilable_check)
        "TRANSFORMERS_DISABLE_TORCH_CHECK": "1",
    }
