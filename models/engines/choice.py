"""Which engine a machine can run, and why: `engine: auto` of serve_config.yaml, and its refusals.

The fastest first: TensorRT, ONNX Runtime on the GPU, ONNX Runtime on the CPU. Whoever reads
/v1/models sees which one it became and what the faster ones lack.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from models import gpu, tensorrt_library
from models.cuda_memory import pycuda_driver
from models.engine import Engine, EngineName
from models.engines.onnxruntime_cpu import OnnxRuntimeEngine
from models.engines.onnxruntime_cuda import OnnxRuntimeCudaEngine, missing
from models.engines.onnxruntime_session import VERSION
from models.engines.tensorrt import TensorRTEngine
from models.errors import BundleError
from models.precision import Precision

_NO_GPU_RESERVED = "`resources.gpus` is 0: no part of a GPU is reserved for this model"


@dataclass(frozen=True)
class Choice:
    """reason: one sentence for a person."""

    engine: EngineName
    reason: str


def resolve(requested: Literal["auto"] | EngineName, *, gpus: float) -> Choice:
    """The engine that `engine` of serve_config.yaml means on this machine.

    gpus: `resources.gpus` of the model.

    Raises:
        BundleError: an engine that cannot run here was asked for; the sentence says what it lacks.
    """
    if requested != "auto":
        if (lack := _lack(requested, gpus)) is not None:
            raise BundleError(f"engine {requested} cannot run because {lack}")
        return Choice(requested, f"`engine: {requested}` asks for it")
    if gpus == 0:
        return Choice("onnxruntime", f"on the CPU because {_NO_GPU_RESERVED}")
    tensorrt, cuda = _lack("tensorrt", gpus), _lack("onnxruntime-cuda", gpus)
    if tensorrt is None:
        return Choice("tensorrt", f"the fastest there is, on {gpu.find()}")
    if cuda is None:
        return Choice("onnxruntime-cuda", f"on {gpu.find()}; not tensorrt because {tensorrt}")
    reason = f"on the CPU; not tensorrt because {tensorrt}; not onnxruntime-cuda because {cuda}"
    return Choice("onnxruntime", reason)


def resolve_precision(
    requested: Literal["auto"] | Precision, engine: EngineName, checkpoint: Precision
) -> Precision:
    """What `precision` of serve_config.yaml means for that engine: the checkpoint's own on a GPU;
    on the CPU, which ONNX Runtime has no half kernels for, fp32."""
    if requested != "auto":
        return requested
    return "fp32" if engine == "onnxruntime" else checkpoint


def engine_version(engine: EngineName) -> str:
    """Version of the library behind the engine.

    Raises:
        BundleError: it is not installed.
    """
    return tensorrt_library.load("tensorrt").version if engine == "tensorrt" else VERSION


def open_engine(
    name: EngineName, path: Path, *, largest: tuple[int, int], threads: int, max_batch: int
) -> Engine:
    """The engine of that name with the file at `path` loaded.

    largest: (height, width) of the largest canvas there will be; threads: of the CPU, for one
        inference; max_batch: canvases of one inference.

    Raises:
        BundleError: it cannot be loaded here, or not with batches.
    """
    if max_batch > 1 and name != "onnxruntime":
        raise BundleError(f"engine {name} runs one canvas at a time: batches are not proved on it")
    if name == "tensorrt":
        return TensorRTEngine(path)
    if name == "onnxruntime-cuda":
        return OnnxRuntimeCudaEngine(path, largest=largest, threads=threads)
    return OnnxRuntimeEngine(path, threads=threads, max_batch=max_batch)


def _lack(engine: EngineName, gpus: float) -> str | None:
    """What the engine lacks here, in words that follow "because"; None: it can run."""
    if engine == "onnxruntime":
        return None
    if gpus == 0:
        return _NO_GPU_RESERVED
    if engine == "onnxruntime-cuda":
        return missing()
    try:
        tensorrt_library.load("tensorrt")
        pycuda_driver()
    except BundleError as error:
        return str(error)
    return None if gpu.find() else "there is no NVIDIA GPU"
