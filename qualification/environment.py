"""What a result depends on beside the bundle: versions, hardware and the state of the code."""

import hashlib
import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from qualification.results import Environment

PACKAGES = (
    "detserve",
    "ray",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "numpy",
    "pillow",
    "simplejpeg",
    "opencv-python-headless",
    "pycocotools",
    "aiperf",
)


def read() -> Environment:
    commit = _run("git", "rev-parse", "HEAD")
    changes = _run("git", "diff", "HEAD")
    return Environment(
        python=platform.python_version(),
        packages=dict(filter(None, map(_package, PACKAGES))),
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        gpus=(
            _run("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader") or ""
        ).splitlines(),
        git_commit=commit,
        git_diff_sha256=hashlib.sha256(changes.encode()).hexdigest() if changes else None,
    )


def _package(name: str) -> tuple[str, str] | None:
    try:
        return name, version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _run(*command: str) -> str | None:
    """A command's output in the project's folder; None where it is absent or fails."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None
