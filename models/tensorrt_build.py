"""TensorRT engines from bundle graphs (models/graph.py): parsed, checked, built and serialised.

One code path for `tensorrt` 10.13 and later, 11 and `tensorrt_rtx`. Networks are strongly typed:
precision is what the graph says, which TensorRT 11 does always and 10 when asked.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from models.errors import BundleError
from models.graph import IMAGE, SizeRange
from models.tensorrt_callbacks import Log, Messages, Progress, logger
from models.tensorrt_library import Library, LibraryName, load
from models.tensorrt_signature import (
    Tensor,
    check_signature,
    engine_signature,
    listed,
    network_signature,
)
from models.tensorrt_timing import TimingCache, gpu_name

if TYPE_CHECKING:
    import tensorrt as trt


@dataclass(frozen=True)
class BuiltEngine:
    """A built engine and what its build said.

    serialised: what `Runtime.deserialize_cuda_engine` of the same library and version takes.
    seconds: of parsing and building.
    signature: of the loaded engine, or of its network where the library cannot load it here.
    gpu: that it was built on and for; None for `tensorrt_rtx`, which builds for any.
    """

    serialised: bytes
    seconds: float
    warnings: tuple[str, ...]
    signature: tuple[Tensor, ...]
    library: LibraryName
    version: str
    gpu: str | None


def build_engine(
    graph: onnx.ModelProto,
    sizes: SizeRange | None,
    *,
    library: LibraryName = "tensorrt",
    log: Log,
) -> BuiltEngine:
    """Build an engine on this machine's first GPU; with `tensorrt_rtx`, on the CPU for any.

    graph: of models/graph.py, with its precision in it.
    sizes: that a graph of dynamic height and width is built for; None: they are fixed.
    log: is told the progress, a line every few seconds. What it raises ends the build.

    Raises:
        BundleError: the library is missing or finds no GPU, cannot take a node of the graph, or
            fails; or the signature is not that of models/graph.py.
    """
    used = load(library)
    log(f"building the engine with {used.title}")
    began = time.monotonic()
    messages, progress = Messages(), Progress(log)
    gpu = None if used.ahead_of_time else gpu_name()
    # in a thread: Ctrl-C interrupts the main thread only, and in a callback it would be lost
    with messages.listening(), ThreadPoolExecutor(1, "tensorrt-build") as pool:
        try:
            building = pool.submit(_build, used, graph, sizes, gpu, messages, progress)
            serialised, signature = building.result()
        except KeyboardInterrupt as interrupt:
            progress.stop(interrupt)
            raise
    engine = BuiltEngine(
        serialised=serialised,
        seconds=time.monotonic() - began,
        warnings=tuple(messages.warnings),
        signature=signature,
        library=library,
        version=used.version,
        gpu=gpu,
    )
    log(
        f"built in {engine.seconds:.1f} s: {len(serialised) / 1e6:.1f} MB, "
        f"warnings: {len(engine.warnings)}"
    )
    return engine


def _build(
    used: Library,
    graph: onnx.ModelProto,
    sizes: SizeRange | None,
    gpu: str | None,
    messages: Messages,
    progress: Progress,
) -> tuple[bytes, tuple[Tensor, ...]]:
    """The serialised engine and its signature."""
    try:
        builder = used.api.Builder(logger(used.name))
    except TypeError as error:  # what pybind makes of a builder that could not be created
        raise BundleError(f"{used.title} cannot start: {messages.last_error}") from error
    # the flag is ignored by TensorRT 11, which knows no other networks
    flags = 1 << int(used.api.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(flags)
    _parse(used, network, graph)
    signature = network_signature(network)
    check_signature(signature, sizes)

    config = builder.create_builder_config()
    # FP32 stands in a graph where FP16 is too coarse, and TF32 has no more digits than FP16
    config.clear_flag(used.api.BuilderFlag.TF32)
    monitor = progress.monitor(used.api)
    config.progress_monitor = monitor
    if sizes is not None:
        _add_profile(used, builder, config, sizes)
    timings = None if gpu is None else TimingCache(used, gpu)
    if timings is not None:
        timings.attach(config)
    memory: trt.IHostMemory | None = builder.build_serialized_network(network, config)
    if progress.stopped_by is not None:
        raise progress.stopped_by
    if memory is None:
        raise BundleError(f"{used.title} cannot build the engine: {messages.last_error}")
    if timings is not None:
        timings.keep(config)
    if not used.ahead_of_time:
        _check_loaded(used, memory, signature, messages)
    return bytes(memory), signature


def _parse(used: Library, network: "trt.INetworkDefinition", graph: onnx.ModelProto) -> None:
    parser = used.api.OnnxParser(network, logger(used.name))
    if parser.parse(graph.SerializeToString()):
        return
    sentences = []
    for number in range(parser.num_errors):
        error = parser.get_error(number)
        # a node without a name is found by its first output; -1: the fault is in no node
        known = 0 <= error.node() < len(graph.graph.node)
        node = graph.graph.node[error.node()] if known else onnx.NodeProto()
        name = error.node_name() or next(iter(node.output), "")
        where = f"node {name!r} ({error.node_operator() or node.op_type}): " if name else ""
        sentences.append(f"{where}{error.code().name}: {_without_cuda(error.desc())}")
    raise BundleError(f"{used.title} cannot take the graph: {'; '.join(sentences)}")


def _without_cuda(text: str) -> str:
    """On one line, without the complaint about a missing driver that follows on every CPU."""
    return " ".join(line for line in text.splitlines() if "::catchCudaError" not in line)


def _add_profile(
    used: Library, builder: "trt.Builder", config: "trt.IBuilderConfig", sizes: SizeRange
) -> None:
    profile = builder.create_optimization_profile()
    profile.set_shape(
        IMAGE,
        *(used.api.Dims([1, *size, 3]) for size in (sizes.smallest, sizes.usual, sizes.largest)),
    )
    config.add_optimization_profile(profile)


def _check_loaded(
    used: Library,
    memory: "trt.IHostMemory",
    expected: tuple[Tensor, ...],
    messages: Messages,
) -> None:
    """The engine loads on the GPU it was built on and has the network's signature."""
    engine: trt.ICudaEngine | None = used.api.Runtime(logger(used.name)).deserialize_cuda_engine(
        memory
    )
    if engine is None:
        raise BundleError(f"{used.title} cannot load what it built: {messages.last_error}")
    found = engine_signature(engine)
    if set(found) != set(expected):
        raise BundleError(
            f"{used.title} built an engine with {listed(found)} from a network with "
            f"{listed(expected)}"
        )
