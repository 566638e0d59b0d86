"""A simulated GPU behind stand-ins for `pycuda.driver`, `cuda.bindings.driver` and `tensorrt`.

Why a simulation: no machine of CI has a GPU, and the faults that matter (a copy on another stream,
a result read before it arrived) show in no error. What is queued here runs when its own stream is
synchronised and not before, in the stream's order and in no other; memory begins as garbage; every
call wants the context current in its thread; and what is made is counted until it is freed.
"""

import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

GARBAGE = 0xA5
ANCHORS = 5
OUTPUTS = {"boxes": ("FLOAT", (1, ANCHORS, 4)), "scores": ("FLOAT", (1, ANCHORS))}
OUTPUTS |= {"class_ids": ("INT32", (1, ANCHORS))}
VERSION = "10.13.3.9"


def answer(image: np.ndarray) -> dict[str, np.ndarray]:
    """What the simulated engine answers: every output depends on every pixel."""
    weights = np.arange(1, image.size + 1, dtype=np.int64)
    value = int((image.reshape(-1) * weights).sum() % 100_003)
    boxes = (value + np.arange(ANCHORS * 4)).astype(np.float32).reshape(1, ANCHORS, 4)
    return {
        "boxes": boxes,
        "scores": boxes[..., 0] / np.float32(2),
        "class_ids": (value % 91 + np.arange(ANCHORS)).astype(np.int32)[None],
    }


class Error(Exception):
    """pycuda.driver.Error."""


class OutOfMemory(Error):
    """pycuda.driver.MemoryError."""


@dataclass
class FakeGpu:
    """calls: what was done, in order; live: what was made and not freed, by kind; capacity: bytes
    of memory; capturable: whether inference may be recorded as a graph; canvas: the engine's shape
    of `image`; profile: where that is dynamic, the smallest, usual and largest."""

    calls: list[str] = field(default_factory=list)
    live: dict[str, int] = field(default_factory=dict)
    capacity: int = 1 << 30
    capturable: bool = True
    canvas: tuple[int, ...] = (1, 6, 8, 3)
    profile: list[tuple[int, ...]] | None = None
    plan_is_foreign: bool = False
    memory: dict[int, np.ndarray] = field(default_factory=dict)
    streams: dict[int, "Stream"] = field(default_factory=dict)
    stacks: Any = field(default_factory=threading.local)

    def said(self, call: str) -> None:
        assert self.stack(), f"{call} without a current context"
        self.calls.append(call)

    def stack(self) -> list["Context"]:
        if not hasattr(self.stacks, "of_this_thread"):
            self.stacks.of_this_thread = []
        found: list[Context] = self.stacks.of_this_thread
        return found

    def made(self, kind: str) -> None:
        self.live[kind] = self.live.get(kind, 0) + 1

    def gone(self, kind: str) -> None:
        self.live[kind] -= 1
        assert self.live[kind] >= 0, f"{kind} freed twice"

    def at(self, address: int, nbytes: int) -> np.ndarray:
        found = self.memory[address]
        assert nbytes <= found.nbytes, f"{nbytes} bytes at {address}, which has {found.nbytes}"
        return found[:nbytes]


class Context:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.valid = gpu, True
        gpu.made("context")

    def push(self) -> None:
        assert self.valid
        self.gpu.stack().append(self)

    def detach(self) -> None:
        assert self.gpu.stack()[-1] is self  # PyCUDA does nothing otherwise
        self.gpu.said("release context")
        self.gpu.stack().pop()
        self.valid = False
        self.gpu.gone("context")


class PageLockedAllocation:
    """Garbage at first; numpy keeps it as the array's base."""

    def __init__(self, gpu: FakeGpu, nbytes: int) -> None:
        self.gpu, self.content = gpu, bytearray([GARBAGE]) * nbytes
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (np.frombuffer(self.content, np.uint8).ctypes.data, False),
            "version": 3,
        }
        gpu.said(f"page-lock {nbytes}")
        gpu.made("page-locked memory")

    def free(self) -> None:
        self.gpu.said("free page-locked memory")
        self.gpu.gone("page-locked memory")


class DeviceAllocation:
    def __init__(self, gpu: FakeGpu, nbytes: int) -> None:
        if nbytes + sum(each.nbytes for each in gpu.memory.values()) > gpu.capacity:
            raise OutOfMemory("out of memory")
        self.gpu, self.address = gpu, 0x1000 * (1 + len(gpu.calls))
        gpu.said(f"allocate {nbytes}")
        gpu.memory[self.address] = np.full(nbytes, GARBAGE, np.uint8)
        gpu.made("device memory")

    def __int__(self) -> int:
        return self.address

    def free(self) -> None:
        self.gpu.said("free device memory")
        del self.gpu.memory[self.address]
        self.gpu.gone("device memory")


class Stream:
    def __init__(self, gpu: FakeGpu, flags: int) -> None:
        assert flags == 1, "a stream that waits for the default one"
        self.gpu, self.handle = gpu, 7 + len(gpu.streams)
        self.queued: list[Callable[[], None]] = []
        self.recorded: list[Callable[[], None]] | None = None
        gpu.said("create stream")
        gpu.streams[self.handle] = self
        gpu.made("stream")

    def queue(self, work: Callable[[], None]) -> None:
        (self.queued if self.recorded is None else self.recorded).append(work)

    def synchronize(self) -> None:
        self.gpu.said(f"synchronize {self.name}")
        assert self.recorded is None, "a stream cannot be waited for while it is recorded"
        while self.queued:
            self.queued.pop(0)()

    @property
    def name(self) -> str:
        return f"stream {sorted(self.gpu.streams).index(self.handle)}"


class PyCudaStream:
    """What user code holds: the stream is destroyed with the last reference to it."""

    def __init__(self, gpu: FakeGpu, flags: int = 0) -> None:
        self.stream = Stream(gpu, flags)
        self.handle = self.stream.handle

    def synchronize(self) -> None:
        self.stream.synchronize()

    def __del__(self) -> None:
        self.stream.gpu.said(f"destroy {self.stream.name}")
        self.stream.gpu.gone("stream")


def _pycuda(gpu: FakeGpu) -> types.ModuleType:
    driver = types.ModuleType("pycuda.driver")

    def pop() -> None:
        gpu.stack().pop()

    def copy_in(address: int, source: np.ndarray, stream: PyCudaStream) -> None:
        gpu.said(f"copy in, {stream.stream.name}")
        room = gpu.at(address, source.nbytes)

        def work() -> None:
            room[:] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)

        stream.stream.queue(work)

    def copy_out(target: np.ndarray, address: int, stream: PyCudaStream) -> None:
        gpu.said(f"copy out, {stream.stream.name}")
        room = gpu.at(address, target.nbytes)
        stream.stream.queue(
            lambda: np.copyto(target, room.view(target.dtype).reshape(target.shape))
        )

    contents: dict[str, Any] = {
        "Error": Error,
        "MemoryError": OutOfMemory,
        "init": lambda: None,
        "Device": lambda number: types.SimpleNamespace(retain_primary_context=lambda: Context(gpu)),
        "Context": types.SimpleNamespace(pop=pop),
        "pagelocked_empty": lambda n, dtype: np.asarray(PageLockedAllocation(gpu, n)),
        "mem_alloc": lambda n: DeviceAllocation(gpu, n),
        "mem_get_info": lambda: (gpu.capacity >> 1, gpu.capacity),
        "Stream": lambda flags=0: PyCudaStream(gpu, flags),
        "memcpy_htod_async": copy_in,
        "memcpy_dtoh_async": copy_out,
    }
    driver.__dict__.update(contents)
    return driver


def _bindings(gpu: FakeGpu) -> types.ModuleType:
    driver = types.ModuleType("cuda.bindings.driver")
    success, failure = (
        types.SimpleNamespace(name="CUDA_SUCCESS"),
        types.SimpleNamespace(name="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
    )

    def begin(handle: int, mode: str) -> tuple[Any]:
        gpu.said("begin capture")
        assert mode == "thread local"
        gpu.streams[handle].recorded = []
        return (success,)

    def end(handle: int) -> tuple[Any, Any]:
        gpu.said("end capture")
        work, gpu.streams[handle].recorded = gpu.streams[handle].recorded, None
        if not gpu.capturable:
            return failure, None
        gpu.made("graph")
        return success, work

    def destroy(graph: Any) -> tuple[Any]:
        gpu.gone("graph")
        return (success,)

    def instantiate(graph: Any, flags: int) -> tuple[Any, Any]:
        gpu.made("executable graph")
        return success, list(graph)

    def launch(executable: Any, handle: int) -> tuple[Any]:
        gpu.said(f"launch graph, {gpu.streams[handle].name}")
        gpu.streams[handle].queued += executable
        return (success,)

    def destroy_executable(executable: Any) -> tuple[Any]:
        gpu.said("destroy graph")
        gpu.gone("executable graph")
        return (success,)

    contents: dict[str, Any] = {
        "CUstream": int,
        "CUstreamCaptureMode": types.SimpleNamespace(
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL="thread local"
        ),
        "CUresult": types.SimpleNamespace(CUDA_SUCCESS=success),
        "cuStreamBeginCapture": begin,
        "cuStreamEndCapture": end,
        "cuGraphDestroy": destroy,
        "cuGraphInstantiate": instantiate,
        "cuGraphLaunch": launch,
        "cuGraphExecDestroy": destroy_executable,
    }
    driver.__dict__.update(contents)
    return driver


class ExecutionContext:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.shape = gpu, gpu.canvas
        self.addresses: dict[str, int] = {}
        gpu.said("create execution context")
        gpu.made("execution context")

    def __del__(self) -> None:
        self.gpu.said("destroy execution context")
        self.gpu.gone("execution context")

    def set_optimization_profile_async(self, number: int, handle: int) -> bool:
        return number == 0 and self.gpu.profile is not None

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert name == "image"
        assert self.gpu.profile is not None
        smallest, _, largest = self.gpu.profile
        self.gpu.said(f"shape {shape[1]}x{shape[2]}")
        fits = all(a <= b <= c for a, b, c in zip(smallest, shape, largest, strict=True))
        self.shape = shape if fits else self.shape
        return fits

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shape if name == "image" else OUTPUTS[name][1]

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def execute_async_v3(self, handle: int) -> bool:
        stream = self.gpu.streams[handle]
        self.gpu.said(f"infer, {stream.name}")
        shape = self.shape
        room = self.gpu.at(self.addresses["image"], int(np.prod(shape)))
        rooms = {
            name: self.gpu.at(self.addresses[name], 4 * int(np.prod(shape)))
            for name, (_, shape) in OUTPUTS.items()
        }

        def work() -> None:
            for name, values in answer(room.reshape(shape)).items():
                rooms[name][:] = values.reshape(-1).view(np.uint8)

        stream.queue(work)
        return True


class FakeEngine:
    num_io_tensors = 4

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        gpu.said("load engine")
        gpu.made("engine")

    def __del__(self) -> None:
        self.gpu.said("unload engine")
        self.gpu.gone("engine")

    def get_tensor_name(self, number: int) -> str:
        return ("image", *OUTPUTS)[number]

    def get_tensor_mode(self, name: str) -> Any:
        return types.SimpleNamespace(name="INPUT" if name == "image" else "OUTPUT")

    def get_tensor_dtype(self, name: str) -> Any:
        return types.SimpleNamespace(name="UINT8" if name == "image" else OUTPUTS[name][0])

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        canvas = self.gpu.canvas if self.gpu.profile is None else (1, -1, -1, 3)
        return canvas if name == "image" else OUTPUTS[name][1]

    def get_tensor_profile_shape(self, name: str, number: int) -> list[tuple[int, ...]]:
        assert (name, number) == ("image", 0)
        assert self.gpu.profile is not None
        return self.gpu.profile

    def create_execution_context(self) -> ExecutionContext:
        return ExecutionContext(self.gpu)


def _tensorrt(gpu: FakeGpu) -> types.ModuleType:
    module = types.ModuleType("tensorrt")

    class Runtime:
        def __init__(self, logger: Any) -> None:
            self.logger = logger

        def deserialize_cuda_engine(self, plan: bytes) -> FakeEngine | None:
            if gpu.plan_is_foreign:
                error = types.SimpleNamespace(name="ERROR")
                self.logger.log(error, "Version tag does not match")
                return None
            return FakeEngine(gpu)

    module.__dict__.update(__version__=VERSION, ILogger=object, Runtime=Runtime)
    return module


def install(monkeypatch: pytest.MonkeyPatch, *, bindings: bool = True) -> FakeGpu:
    """The three modules in place of the real ones, if any."""
    gpu = FakeGpu()
    driver = _pycuda(gpu)
    pycuda = types.ModuleType("pycuda")
    pycuda.__dict__["driver"] = driver
    monkeypatch.setitem(sys.modules, "pycuda", pycuda)
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    monkeypatch.setitem(sys.modules, "tensorrt", _tensorrt(gpu))
    graphs = _bindings(gpu) if bindings else None
    package = types.ModuleType("cuda.bindings")
    package.__dict__["driver"] = graphs
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", graphs)
    return gpu
