"""CUDA by PyCUDA: the GPU's primary context, buffers, streams, events and graphs.

Why apart from the engines: what goes wrong here (a buffer too small, a copy on another stream, a
result read before it arrived, memory that stays) goes wrong silently, so it is written once, with
checks, and tested by itself. PyCUDA is imported when a `Device` is made; graphs need cuda-bindings
too, since PyCUDA has none.

What PyCUDA asks for and does not say:
- An object is freed by the thread that made its context, or where that context is current; anywhere
  else it prints a warning and leaks. So everything is made, used and freed in `Device.current()`.
- A thread that ends with a context on PyCUDA's stack aborts the process. So none stays there.
"""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from models.errors import BundleError

_NON_BLOCKING = 1  # cuda.h, CU_STREAM_NON_BLOCKING: no waiting for the default stream


class Device:
    """The first GPU's primary context, which TensorRT and the CUDA runtime use too; held until
    `close`.

    Raises:
        BundleError: PyCUDA is not installed, or there is no GPU.
    """

    def __init__(self) -> None:
        self._cuda = pycuda_driver()
        try:
            self._cuda.init()
            self._context = self._cuda.Device(0).retain_primary_context()
        except self._cuda.Error as error:
            raise BundleError(f"no NVIDIA GPU can be used here: {error}") from error

    @contextmanager
    def current(self) -> Iterator[None]:
        """The context is this thread's in here. Nests, and several threads may be in it at once."""
        self._context.push()
        try:
            yield
        finally:
            self._cuda.Context.pop()

    def close(self) -> None:
        """Give the context up, in any thread; all that was made in it must be freed."""
        self._context.push()  # PyCUDA gives up no other context, without a word
        self._context.detach()


class PageLocked:
    """Host memory that the GPU copies from and to by itself. Made and freed in `current()`."""

    def __init__(self, nbytes: int) -> None:
        cuda = pycuda_driver()
        try:
            self._flat: np.ndarray = cuda.pagelocked_empty(nbytes, np.uint8)
        except cuda.MemoryError as error:
            raise BundleError(f"{nbytes} bytes of page-locked memory are not to be had") from error

    def view(self, shape: Sequence[int], dtype: DTypeLike) -> np.ndarray:
        """An array over the beginning of the memory.

        Raises:
            ValueError: the memory is smaller.
        """
        needed = _nbytes(shape, dtype)
        if needed > self._flat.nbytes:
            raise ValueError(f"{needed} bytes do not fit into the {self._flat.nbytes} there are")
        return self._flat[:needed].view(dtype).reshape(shape)

    def free(self) -> None:
        """No view may be used after it."""
        self._flat.base.free()  # type: ignore[union-attr]  # PyCUDA's allocation


class DeviceMemory:
    """GPU memory. Made and freed in `current()`."""

    def __init__(self, nbytes: int) -> None:
        cuda = pycuda_driver()
        self.nbytes = nbytes
        try:
            self._allocation = cuda.mem_alloc(nbytes)
        except cuda.MemoryError as error:
            free, total = (size >> 20 for size in cuda.mem_get_info())
            raise BundleError(
                f"the GPU's memory is full: {nbytes >> 20} MiB more are needed, "
                f"{free} of {total} MiB are free"
            ) from error

    @property
    def address(self) -> int:
        return int(self._allocation)

    def free(self) -> None:
        self._allocation.free()


class Stream:
    """Work that the GPU does in order, beside that of other streams. Used in `current()`."""

    def __init__(self) -> None:
        self._cuda = pycuda_driver()
        self._stream = self._cuda.Stream(_NON_BLOCKING)

    @property
    def handle(self) -> int:
        """CUstream, as TensorRT and cuda-bindings take it."""
        return int(self._stream.handle)

    def copy_in(self, target: DeviceMemory, source: np.ndarray) -> None:
        """Queue a copy to the GPU. source: page-locked, unchanged until it is done.

        Raises:
            ValueError: the target is smaller than the source.
        """
        _must_fit(source.nbytes, target.nbytes)
        self._cuda.memcpy_htod_async(target.address, source, self._stream)

    def copy_out(self, target: np.ndarray, source: DeviceMemory) -> None:
        """Queue a copy from the GPU that fills `target`. target: page-locked; not to be read
        before `synchronize`.

        Raises:
            ValueError: the source is smaller than the target.
        """
        _must_fit(target.nbytes, source.nbytes)
        self._cuda.memcpy_dtoh_async(target, source.address, self._stream)

    def record(self) -> "Event":
        """A mark behind what is queued so far."""
        return Event(self._cuda.Event().record(self._stream))

    def wait(self, event: "Event") -> None:
        """What is queued from here on waits for a mark on another stream."""
        self._stream.wait_for_event(event.recorded)

    def synchronize(self) -> None:
        """Wait until all that is queued is done; other threads run in the meantime."""
        self._stream.synchronize()

    def free(self) -> None:
        """Nothing may be queued any more."""
        del self._stream  # PyCUDA destroys it with its last reference


class Event:
    """A mark on a stream; its time is taken when the GPU gets there."""

    def __init__(self, recorded: Any) -> None:
        self.recorded = recorded

    def ms_since(self, earlier: "Event") -> float:
        """Milliseconds on the GPU between two marks, once both are reached."""
        return float(self.recorded.time_since(earlier.recorded))


class Graph:
    """What was queued on a stream in `with graph.captured():`, replayed as one."""

    def __init__(self, stream: Stream) -> None:
        from cuda.bindings import driver

        self._driver = driver
        self._stream = stream
        self._executable: Any = None

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Record instead of run. Buffers and shapes are those of now, at every replay.

        Raises:
            GraphError: something in here cannot be recorded.
        """
        driver, handle = self._driver, self._driver.CUstream(self._stream.handle)
        # of this thread only: the other slot goes on, and may allocate
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call(driver.cuStreamBeginCapture, handle, mode)
        graph = None
        try:
            try:
                yield
            finally:  # a stream stays in this state otherwise
                graph = self._call(driver.cuStreamEndCapture, handle)
            self._executable = self._call(driver.cuGraphInstantiate, graph, 0)
        finally:
            if graph is not None:
                self._call(driver.cuGraphDestroy, graph)

    def launch(self) -> None:
        """Queue the whole of it on its stream."""
        self._call(
            self._driver.cuGraphLaunch,
            self._executable,
            self._driver.CUstream(self._stream.handle),
        )

    def free(self) -> None:
        """Not while it runs."""
        if self._executable is not None:
            self._call(self._driver.cuGraphExecDestroy, self._executable)
            self._executable = None

    def _call(self, function: Any, *arguments: Any) -> Any:
        """What the driver's function returns beside its status."""
        status, *rest = function(*arguments)
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise GraphError(f"{function.__name__} answers {status.name}")
        return rest[0] if rest else None


class GraphError(Exception):
    """Work could not be recorded or replayed as a CUDA graph."""


def has_graphs() -> bool:
    """Whether cuda-bindings is installed."""
    try:
        importlib.import_module("cuda.bindings.driver")
    except ImportError:
        return False
    return True


def has_pycuda() -> bool:
    """Whether PyCUDA is installed and finds a CUDA driver."""
    try:
        pycuda_driver()
    except BundleError:
        return False
    return True


def pycuda_driver() -> Any:
    """PyCUDA's module of the driver's API.

    Raises:
        BundleError: it is not installed, or finds no CUDA driver.
    """
    try:
        import pycuda.driver
    except ImportError as error:
        raise BundleError(
            f'PyCUDA is not installed: pip install "detserve[tensorrt]", '
            f"which needs CUDA's nvcc ({error})"
        ) from error
    return pycuda.driver


def _nbytes(shape: Sequence[int], dtype: DTypeLike) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


def _must_fit(needed: int, there: int) -> None:
    if needed > there:
        raise ValueError(f"{needed} bytes do not fit into the {there} there are")
