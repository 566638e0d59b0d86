"""TensorRT's timing cache, kept between builds: what it measured once it need not measure again.

One file for each library version and GPU, since timings hold for no other; without it every build
of every model times the same kernels for minutes.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from models import gpu
from models.home import home
from models.tensorrt_library import Library

if TYPE_CHECKING:
    import tensorrt as trt


def gpu_name() -> str | None:
    """The GPU that engines are built on, with its compute capability; None: there is none."""
    found = gpu.find()
    return None if found is None else str(found)


class TimingCache:
    """The cache file of one library on one GPU, which `on` names, under DETSERVE_HOME."""

    def __init__(self, library: Library, on: str) -> None:
        name = f"{library.name} {library.version} {on}"
        file = re.sub(r"[^A-Za-z0-9.]+", "-", name) + ".cache"
        self.path: Path = home() / "timing-caches" / file

    def attach(self, config: "trt.IBuilderConfig") -> None:
        """Give the build what was measured before. A file TensorRT does not accept is left out:
        the build measures anew and `keep` replaces it."""
        kept = self._read(config)
        if kept is None or not config.set_timing_cache(kept, False):
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def keep(self, config: "trt.IBuilderConfig") -> None:
        """Write what is known after the build, with what other builds wrote in the meantime."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        measured = config.get_timing_cache()
        with filelock.FileLock(f"{self.path}.lock"):
            others = self._read(config)
            if others is not None:
                measured.combine(others, False)
            handle, scratch = tempfile.mkstemp(dir=self.path.parent)
            with open(handle, "wb") as file:
                file.write(bytes(measured.serialize()))
            os.replace(scratch, self.path)

    def _read(self, config: "trt.IBuilderConfig") -> "trt.ITimingCache | None":
        if not self.path.is_file():
            return None
        return config.create_timing_cache(self.path.read_bytes())
