"""TensorRT's Python module, or that of its sibling for RTX GPUs, imported when an engine is built.

Why lazily and two: neither is needed to serve on a CPU, and production's `tensorrt` comes from
NVIDIA's index, to which a machine without a GPU has no need to go. `tensorrt_rtx` has the same
parser, builder and Python API, comes from PyPI and builds on any CPU: it is what lets CI build
every graph (docs/decisions/tensorrt.md).
"""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from models.errors import BundleError

if TYPE_CHECKING:
    import tensorrt as trt

LibraryName = Literal["tensorrt", "tensorrt_rtx"]

_TITLES = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT for RTX"}
_EXTRAS = {"tensorrt": "tensorrt", "tensorrt_rtx": "dev"}


class API(Protocol):
    """What Detserve uses of either module; a type checker with tensorrt-stubs sees the rest."""

    Builder: type["trt.Builder"]
    BuilderFlag: type["trt.BuilderFlag"]
    Dims: type["trt.Dims"]
    ILogger: type["trt.ILogger"]
    IProgressMonitor: type["trt.IProgressMonitor"]
    NetworkDefinitionCreationFlag: type["trt.NetworkDefinitionCreationFlag"]
    OnnxParser: type["trt.OnnxParser"]
    Runtime: type["trt.Runtime"]


@dataclass(frozen=True)
class Library:
    """An imported library.

    ahead_of_time: it builds for GPUs that are not here, so that it neither times kernels on this
    machine's GPU nor can be asked to load what it built.
    """

    name: LibraryName
    version: str
    api: API
    ahead_of_time: bool

    @property
    def title(self) -> str:
        """For people, with the version."""
        return f"{_TITLES[self.name]} {self.version}"


def load(name: LibraryName) -> Library:
    """Import the library of that name.

    Raises:
        BundleError: it is not installed; the sentence says how to install it.
    """
    try:
        version = str(importlib.import_module(name).__version__)
        api = _tensorrt() if name == "tensorrt" else _tensorrt_rtx()
    # type stubs alone make a module without contents; OSError: a library behind it is missing
    except (ImportError, AttributeError, OSError) as error:
        raise BundleError(
            f'{_TITLES[name]} is not installed: pip install "detserve[{_EXTRAS[name]}]" ({error})'
        ) from error
    return Library(name, version, api, ahead_of_time=name == "tensorrt_rtx")


def _tensorrt() -> API:
    import tensorrt

    api: API = tensorrt
    return api


def _tensorrt_rtx() -> API:
    import tensorrt_rtx

    api: API = tensorrt_rtx
    return api
