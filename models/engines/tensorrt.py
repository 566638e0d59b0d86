"""TensorRT: the engine of a GPU, two canvases at a time.

Each slot has a stream, an execution context and buffers for the largest canvas, page-locked on the
host, so that while one slot computes the other copies, and no request allocates. Where the canvas
has one size, copies and inference are recorded once as a CUDA graph and replayed by one call.
"""

import functools
import logging
import math
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from models.cuda_memory import Device, DeviceMemory, Graph, GraphError, PageLocked, Stream
from models.cuda_memory import has_graphs as cuda_bindings_installed
from models.engine import EngineName
from models.errors import BundleError, DetectionFailed
from models.graph import IMAGE, OUTPUTS, SizeRange
from models.tensorrt_callbacks import Messages, logger
from models.tensorrt_library import load
from models.tensorrt_signature import Tensor, check_signature, engine_signature

if TYPE_CHECKING:
    import tensorrt as trt

log = logging.getLogger(__name__)


class TensorRTEngine:
    """One engine with its slots.

    Raises:
        BundleError: TensorRT or PyCUDA is missing, the file is of another GPU or version or does
            not have the signature of models/graph.py, or the GPU's memory is full.
    """

    name: EngineName = "tensorrt"
    slots = 2
    max_batch = 1

    def __init__(self, path: Path) -> None:
        library = load("tensorrt")
        self._messages = Messages()
        with ExitStack() as stack:  # what is made last is given back first
            stack.enter_context(self._messages.listening())
            self._device = Device()
            stack.callback(self._device.close)
            with self._device.current():
                self._engine: Any = library.api.Runtime(logger("tensorrt")).deserialize_cuda_engine(
                    path.read_bytes()
                )
                stack.callback(self._unload)
                if self._engine is None:
                    raise BundleError(
                        f"{library.title} cannot load {path.name}: {self._messages.last_error}"
                    )
                signature = {tensor.name: tensor for tensor in engine_signature(self._engine)}
                sizes = _sizes(self._engine, signature)
                check_signature(signature.values(), sizes)
                self._slots: list[_Slot] = []
                for _ in range(self.slots):
                    slot = _Slot(self._engine, signature, sizes, self._messages)
                    stack.callback(self._free, slot)
                    slot.prepare()
                    self._slots.append(slot)
            self._closing = stack.pop_all()

    def infer(self, image: np.ndarray, slot: int = 0) -> dict[str, np.ndarray]:
        with self._device.current():
            return self._slots[slot].infer(image)

    def close(self) -> None:
        self._slots = []
        self._closing.close()

    def _free(self, slot: "_Slot") -> None:
        with self._device.current():
            slot.free()

    def _unload(self) -> None:
        with self._device.current():
            del self._engine


class _Slot:
    """One canvas's place: stream, context and buffers. Everything in it runs in the device's
    context."""

    def __init__(
        self,
        engine: "trt.ICudaEngine",
        signature: dict[str, Tensor],
        sizes: SizeRange | None,
        messages: Messages,
    ) -> None:
        self._messages, self._sizes = messages, sizes
        self._dtypes = {name: np.dtype(tensor.dtype) for name, tensor in signature.items()}
        self._host: dict[str, PageLocked] = {}
        self._there: dict[str, DeviceMemory] = {}
        self._graph: Graph | None = None
        with ExitStack() as stack:
            self._stream = Stream()
            stack.callback(self._stream.free)
            self._context: Any = engine.create_execution_context()
            stack.callback(self._drop_context)
            if self._context is None:
                raise BundleError(f"TensorRT has no execution context: {messages.last_error}")
            largest = signature[IMAGE].shape
            if sizes is not None:
                largest = (1, *sizes.largest, 3)
                # both slots use the one profile there is
                self._must(self._context.set_optimization_profile_async(0, self._stream.handle))
                self._stream.synchronize()
                self._must(self._context.set_input_shape(IMAGE, largest))
            for name in (IMAGE, *OUTPUTS):
                self._buffer(stack, name)
            self._use(largest)
            self._freeing = stack.pop_all()

    def prepare(self) -> None:
        """The first inference, which TensorRT does more in; then the graph, where it can be."""
        self._run()
        if self._sizes is not None:
            return
        if not cuda_bindings_installed():
            _say_once("without CUDA graphs: cuda-bindings is not installed")
            return
        graph = Graph(self._stream)
        try:
            with graph.captured():
                self._queue()
        except GraphError as error:
            _say_once(f"without CUDA graphs: {error}")
            return
        self._graph = graph
        self._freeing.callback(graph.free)

    def infer(self, image: np.ndarray) -> dict[str, np.ndarray]:
        """Raises:
        ValueError: the image is of another size than the one the engine was built for.
        DetectionFailed: TensorRT cannot run it; with a size it was not built for, among others.
        """
        if image.shape != self._image.shape:
            if self._sizes is None:
                raise ValueError(f"the engine takes {self._image.shape}, not {image.shape}")
            self._must(self._context.set_input_shape(IMAGE, image.shape))
            self._use(image.shape)
        np.copyto(self._image, image)
        self._run()
        return self._outputs

    def free(self) -> None:
        """What was made last goes first: the graph, buffers, the context, its stream."""
        self._stream.synchronize()
        del self._image, self._outputs
        self._freeing.close()

    def _run(self) -> None:
        if self._graph is not None:
            self._graph.launch()
        else:
            self._queue()
        self._stream.synchronize()

    def _queue(self) -> None:
        """Copy in, infer, copy out, in this order because on one stream."""
        self._stream.copy_in(self._there[IMAGE], self._image)
        self._must(self._context.execute_async_v3(self._stream.handle))
        for name, array in self._outputs.items():
            self._stream.copy_out(array, self._there[name])

    def _use(self, canvas: tuple[int, ...]) -> None:
        """Views over the buffers for the shape that the context has been given."""
        self._image = self._host[IMAGE].view(canvas, np.uint8)
        self._outputs = {
            name: self._host[name].view(self._shape(name), self._dtypes[name]) for name in OUTPUTS
        }

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(side) for side in self._context.get_tensor_shape(name))

    def _buffer(self, stack: ExitStack, name: str) -> None:
        """Memory of the tensor on both sides, for the shape that the context has been given."""
        nbytes = math.prod(self._shape(name)) * self._dtypes[name].itemsize
        self._host[name] = PageLocked(nbytes)
        stack.callback(self._host[name].free)
        self._there[name] = DeviceMemory(nbytes)
        stack.callback(self._there[name].free)
        self._must(self._context.set_tensor_address(name, self._there[name].address))

    def _drop_context(self) -> None:
        del self._context

    def _must(self, done: bool) -> None:
        """TensorRT answers False and tells its logger why."""
        if not done:
            raise DetectionFailed(f"TensorRT: {self._messages.last_error}")


def _sizes(engine: "trt.ICudaEngine", signature: dict[str, Tensor]) -> SizeRange | None:
    """That the engine was built for; None: its canvas has one size."""
    if -1 not in signature[IMAGE].shape:
        return None
    smallest, usual, largest = (
        (int(dims[1]), int(dims[2])) for dims in engine.get_tensor_profile_shape(IMAGE, 0)
    )
    return SizeRange(smallest, usual, largest)


@functools.cache  # each sentence once a process
def _say_once(sentence: str) -> None:
    log.warning("TensorRT runs %s", sentence)
