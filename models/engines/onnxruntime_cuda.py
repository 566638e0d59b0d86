"""ONNX Runtime's CUDA provider: the engine of a GPU where TensorRT is not installed.

Input and outputs are bound to host memory that is reused, page-locked where PyCUDA is installed
(the `gpu` extra does without it, since it is compiled by CUDA's nvcc): the GPU then copies from and
to it without a detour, and no request allocates on the host or outside ONNX Runtime's arena.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import DTypeLike

from models import gpu
from models.cuda_memory import Device, PageLocked, has_pycuda
from models.engine import EngineName
from models.engines.onnxruntime_session import CUDA, onnxruntime, open_session
from models.errors import BundleError
from models.graph import IMAGE, OUTPUTS

# both packages are one module, so that the one that was installed last is what there is
INSTALL = (
    "pip uninstall --yes onnxruntime && "
    "pip install --force-reinstall --no-deps onnxruntime-gpu==1.31.1"
)

_DTYPES = {"tensor(float)": np.float32, "tensor(int32)": np.int32}


def missing() -> str | None:
    """Why this engine cannot run here, in words that follow "because"; None: it can."""
    if CUDA not in onnxruntime.get_available_providers():
        return f"the onnxruntime installed here has no CUDA: {INSTALL}"
    return None if gpu.find() else "there is no NVIDIA GPU"


def settings(path: Path) -> dict[str, str]:
    """The provider's settings for the graph at `path` (docs/decisions/tensorrt.md has figures)."""
    graph = onnx.load(path).graph
    single = {w.name for w in graph.initializer if w.data_type == onnx.TensorProto.FLOAT}
    in_single = any(node.op_type == "Conv" and node.input[1] in single for node in graph.node)
    any_size = any(dim.dim_param for dim in graph.input[0].type.tensor_type.shape.dim)
    return {
        "device_id": "0",
        # Convolutions stand in FP32 where FP16 is too coarse, and TF32 has no more digits than
        # FP16. Without it the provider plans each FP16 one in vain first, so it goes where none is.
        "use_tf32": "0" if in_single else "1",
        # By rule, not by timing: replicas that pick other kernels differ in the last bits. Every
        # new size of an image is planned anew, by cuDNN's better rule in ten times the time.
        "cudnn_conv_algo_search": "DEFAULT" if any_size else "HEURISTIC",
        # no more than asked for: other replicas share the GPU
        "arena_extend_strategy": "kSameAsRequested",
    }


class OnnxRuntimeCudaEngine:
    """One session and the host memory that it reads and writes.

    largest: (height, width) of the largest canvas there will be.
    threads: worker threads of the few operators that run on the CPU.

    Raises:
        BundleError: the file cannot be loaded, or not onto the GPU.
    """

    name: EngineName = "onnxruntime-cuda"
    slots = 1
    max_batch = 1

    def __init__(self, path: Path, *, largest: tuple[int, int], threads: int) -> None:
        if (reason := missing()) is not None:
            raise BundleError(f"engine onnxruntime-cuda cannot run because {reason}")
        onnxruntime.preload_dlls()  # CUDA's libraries, where pip installed them
        with ExitStack() as stack:
            self._session: Any = open_session(path, CUDA, settings(path), threads)
            if CUDA not in self._session.get_providers():  # it goes on with the CPU otherwise
                raise BundleError(
                    "engine onnxruntime-cuda cannot run because ONNX Runtime's CUDA provider does "
                    "not load (its reason is in the log above): "
                    "pip install 'onnxruntime-gpu[cuda,cudnn]' brings CUDA's libraries"
                )
            # the largest first, so that all memory is taken at the start
            sample = np.zeros((1, *largest, 3), np.uint8)
            shapes = [found.shape for found in self._session.run(OUTPUTS, {IMAGE: sample})]
            host = _HostMemory(stack)
            self._input = host.array(sample.shape, np.uint8).reshape(-1)
            self._binding: Any = self._session.io_binding()
            self._outputs: dict[str, np.ndarray] = {}
            for described, shape in zip(self._session.get_outputs(), shapes, strict=True):
                array = host.array(shape, _DTYPES[described.type])
                self._binding.bind_output(
                    described.name, "cpu", 0, array.dtype, shape, array.ctypes.data
                )
                self._outputs[described.name] = array
            self._closing = stack.pop_all()

    def infer(self, image: np.ndarray, slot: int = 0) -> dict[str, np.ndarray]:
        staged = self._input[: image.size].reshape(image.shape)
        np.copyto(staged, image)
        # binding copies to the GPU, so it is done for every image
        self._binding.bind_input(IMAGE, "cpu", 0, staged.dtype, staged.shape, staged.ctypes.data)
        self._session.run_with_iobinding(self._binding)
        return self._outputs

    def close(self) -> None:
        self._outputs = {}
        del self._binding, self._session, self._input
        self._closing.close()


class _HostMemory:
    """Arrays that live as long as `stack`; page-locked where PyCUDA is installed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._device = Device() if has_pycuda() else None
        if self._device is not None:
            stack.callback(self._device.close)

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        if self._device is None:
            return np.empty(shape, dtype)
        with self._device.current():
            memory = PageLocked(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        self._stack.callback(self._free, self._device, memory)
        return memory.view(shape, dtype)

    @staticmethod
    def _free(device: Device, memory: PageLocked) -> None:
        with device.current():
            memory.free()
