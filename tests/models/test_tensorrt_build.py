"""Bundle graphs through a real TensorRT parser and builder: `tensorrt_rtx`, on the CPU."""

import importlib.util
import os
import re
import signal
import struct
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models import catalogue, tensorrt_build, tensorrt_callbacks
from models.errors import BundleError
from models.family import family
from models.fetch import fetch
from models.graph import SizeRange
from models.resize import SHORTEST_EDGE_SIZES
from models.tensorrt_build import BuiltEngine, Tensor, build_engine, check_signature
from models.tensorrt_callbacks import Progress
from models.tensorrt_library import Library, load
from models.tensorrt_timing import TimingCache
from tests.models.transformers_cases import CANVASES, LABELS, checkpoint, needs_torch

ANCHORS = 5
# sizes that occur nowhere else in an engine
SIZES = SizeRange(smallest=(131, 137), usual=(811, 1069), largest=(1327, 1361))

FLOAT, HALF, UINT8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8
INT32, INT64 = TensorProto.INT32, TensorProto.INT64

needs_rtx = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None,
    reason='needs tensorrt_rtx: pip install "detserve[dev]" (x86-64 only)',
)


def network(height: int | str = 8, width: int | str = 12) -> onnx.ModelProto:
    """A graph of models/graph.py: boxes are five mixtures of the image's mean colour."""
    nodes = [
        helper.make_node("Cast", ["image"], ["pixels"], "widen", to=FLOAT),
        helper.make_node("ReduceMean", ["pixels", "sides"], ["colour"], "mean", keepdims=0),
        helper.make_node("MatMul", ["colour", "weights"], ["values"], "mix"),
        helper.make_node("Reshape", ["values", "corners"], ["boxes"], "rows"),
        helper.make_node("ReduceMax", ["boxes", "last"], ["scores"], "best", keepdims=0),
        helper.make_node("ArgMax", ["boxes"], ["chosen"], "choose", axis=2, keepdims=0),
        helper.make_node("Cast", ["chosen"], ["class_ids"], "narrow", to=INT32),
    ]
    constants = {
        "sides": np.array([1, 2], np.int64),
        "weights": np.random.default_rng(3).random((3, 4 * ANCHORS), np.float32),
        "corners": np.array([1, ANCHORS, 4], np.int64),
        "last": np.array([2], np.int64),
    }
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("image", UINT8, [1, height, width, 3])],
        [
            helper.make_tensor_value_info("boxes", FLOAT, [1, ANCHORS, 4]),
            helper.make_tensor_value_info("scores", FLOAT, [1, ANCHORS]),
            helper.make_tensor_value_info("class_ids", INT32, [1, ANCHORS]),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


def build(
    graph: onnx.ModelProto,
    sizes: SizeRange | None = None,
    log: Callable[[str], None] = lambda message: None,
) -> BuiltEngine:
    return build_engine(graph, sizes, library="tensorrt_rtx", log=log)


def output(graph: onnx.ModelProto, maker: str, old: str, new: str, kind: int, shape: list) -> None:
    """Node `maker` names its output `new` instead of `old`, an output of the graph."""
    (node,) = (node for node in graph.graph.node if node.name == maker)
    node.output[0] = new
    (at,) = (n for n, value in enumerate(graph.graph.output) if value.name == old)
    graph.graph.output[at].CopyFrom(helper.make_tensor_value_info(new, kind, shape))


@needs_rtx
def test_a_fixed_graph_becomes_an_engine_with_the_signature_of_the_contract() -> None:
    built = build(network())
    assert built.signature == (
        Tensor("image", "input", "uint8", (1, 8, 12, 3)),
        Tensor("boxes", "output", "float32", (1, ANCHORS, 4)),
        Tensor("scores", "output", "float32", (1, ANCHORS)),
        Tensor("class_ids", "output", "int32", (1, ANCHORS)),
    )
    assert len(built.serialised) > 1000
    assert 0 < built.seconds < 60
    assert (built.library, built.gpu, built.warnings) == ("tensorrt_rtx", None, ())
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.\d+)?", built.version)


@needs_rtx
def test_a_dynamic_graph_is_built_for_the_sizes_it_is_given() -> None:
    built = build(network("height", "width"), SIZES)
    assert built.signature[0] == Tensor("image", "input", "uint8", (1, -1, -1, 3))
    for size in (SIZES.smallest, SIZES.usual, SIZES.largest):
        assert struct.pack("<4q", 1, *size, 3) in built.serialised, size


@pytest.mark.parametrize(
    ("sides", "sizes", "sentence"),
    [
        (("height", "width"), None, "of dynamic size: say for which sizes to build"),
        ((8, 12), SIZES, r"is \[1, 8, 12, 3\]: only a dynamic height and width"),
        ((8, "width"), SIZES, r"is \[1, 8, -1, 3\]: only a dynamic height and width"),
        ((8, "width"), None, "of dynamic size: say for which sizes to build"),
    ],
)
@needs_rtx
def test_sizes_are_given_for_a_dynamic_graph_and_for_no_other(
    sides: tuple[int | str, int | str], sizes: SizeRange | None, sentence: str
) -> None:
    with pytest.raises(BundleError, match=sentence):
        build(network(*sides), sizes)


@pytest.mark.parametrize(
    ("smallest", "usual", "largest"),
    [((0, 1), (1, 1), (1, 1)), ((2, 2), (1, 2), (2, 2)), ((1, 1), (1, 3), (1, 2))],
)
def test_sizes_out_of_order_are_refused(
    smallest: tuple[int, int], usual: tuple[int, int], largest: tuple[int, int]
) -> None:
    with pytest.raises(ValueError, match="not from the smallest to the largest"):
        SizeRange(smallest, usual, largest)


@needs_rtx
@pytest.mark.parametrize(("named", "expected"), [("oddity", "oddity"), ("", "values")])
def test_an_operator_tensorrt_has_not_is_refused_by_its_node(named: str, expected: str) -> None:
    graph = network()
    graph.graph.node[2].output[0] = "mixed"
    graph.graph.node.insert(3, helper.make_node("Unique", ["mixed"], ["values"], named))
    sentence = rf"cannot take the graph: node '{expected}' \(Unique\): UNSUPPORTED_NODE"
    with pytest.raises(BundleError, match=sentence):
        build(graph)


@needs_rtx
def test_two_types_in_one_operation_are_refused_for_the_network_is_strongly_typed() -> None:
    graph = network()
    weights = graph.graph.initializer[1]
    half = numpy_helper.to_array(weights).astype(np.float16)
    weights.CopyFrom(numpy_helper.from_array(half, weights.name))
    with pytest.raises(BundleError, match=r"node 'mix' \(MatMul\): .*Float and .*Half") as raised:
        build(graph)
    assert "Cuda" not in str(raised.value)


@needs_rtx
def test_a_uint8_image_that_is_not_cast_first_is_refused() -> None:
    graph = network()
    graph.graph.node.remove(graph.graph.node[0])
    reverse = helper.make_node("Transpose", ["image"], ["turned"], "turn", perm=[0, 2, 1, 3])
    cast = helper.make_node("Cast", ["turned"], ["pixels"], "widen", to=FLOAT)
    graph.graph.node.insert(0, reverse)
    graph.graph.node.insert(1, cast)
    with pytest.raises(BundleError, match=r"node 'turn' \(Transpose\): .*UInt8"):
        build(graph)


def renamed(graph: onnx.ModelProto) -> None:
    output(graph, "best", "scores", "confidence", FLOAT, [1, ANCHORS])


def wide_ids(graph: onnx.ModelProto) -> None:
    graph.graph.node.remove(graph.graph.node[6])
    output(graph, "choose", "class_ids", "class_ids", INT64, [1, ANCHORS])


def half_scores(graph: onnx.ModelProto) -> None:
    output(graph, "best", "scores", "fine", FLOAT, [1, ANCHORS])
    graph.graph.node.append(helper.make_node("Cast", ["fine"], ["scores"], "halve", to=HALF))
    graph.graph.output[1].CopyFrom(helper.make_tensor_value_info("scores", HALF, [1, ANCHORS]))


def kept_axis(graph: onnx.ModelProto) -> None:
    graph.graph.node[4].attribute[0].i = 1
    output(graph, "best", "scores", "scores", FLOAT, [1, ANCHORS, 1])


def missing(graph: onnx.ModelProto) -> None:
    del graph.graph.output[2]


def extra(graph: onnx.ModelProto) -> None:
    graph.graph.output.append(helper.make_tensor_value_info("values", FLOAT, [1, 4 * ANCHORS]))


def float_image(graph: onnx.ModelProto) -> None:
    graph.graph.input[0].type.tensor_type.elem_type = FLOAT


def planes_first(graph: onnx.ModelProto) -> None:
    graph.graph.input[0].CopyFrom(helper.make_tensor_value_info("image", UINT8, [1, 3, 8, 12]))
    graph.graph.node[1].attribute[0].i = 0
    numpy = np.array([2, 3], np.int64)
    graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(numpy, "sides"))


@needs_rtx
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (renamed, r"output confidence float32 \[1, 5\]"),
        (wide_ids, r"output class_ids int64 \[1, 5\]"),
        (half_scores, r"output scores float16 \[1, 5\]"),
        (kept_axis, r"output scores float32 \[1, 5, 1\]"),
        (missing, r"output scores float32 \[1, 5\];"),
        (extra, r"output values float32 \[1, 20\]"),
        (float_image, r"input image float32 \[1, 8, 12, 3\]"),
        (planes_first, r"input image uint8 \[1, 3, 8, 12\]"),
    ],
)
def test_a_changed_signature_is_refused_before_anything_is_built(
    change: Callable[[onnx.ModelProto], None], found: str
) -> None:
    graph = network()
    change(graph)
    said: list[str] = []
    with pytest.raises(BundleError, match=rf"the engine has .*{found}.* models/graph.py says"):
        build(graph, log=said.append)
    assert len(said) == 1


def test_a_number_of_boxes_that_depends_on_the_image_is_refused() -> None:
    signature = (
        Tensor("class_ids", "output", "int32", (1, -1)),
        Tensor("scores", "output", "float32", (1, -1)),
        Tensor("boxes", "output", "float32", (1, -1, 4)),
        Tensor("image", "input", "uint8", (1, 8, 12, 3)),
    )
    with pytest.raises(BundleError, match="depends on what the image shows"):
        check_signature(signature, None)


@needs_rtx
def test_a_build_that_fails_gives_the_builders_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_build, "_add_profile", lambda *arguments: None)
    with pytest.raises(BundleError, match=r"cannot build the engine: .* no optimization profile"):
        build(network("height", "width"), SIZES)


@needs_rtx
def test_a_library_that_finds_no_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_builder(logger: object) -> None:
        logger.log(load("tensorrt_rtx").api.ILogger.Severity.ERROR, "CUDA is absent")
        raise TypeError("pybind11::init(): factory function returned nullptr")

    monkeypatch.setattr(tensorrt_build, "load", lambda name: with_api(Builder=no_builder))
    with pytest.raises(BundleError, match="cannot start: CUDA is absent"):
        build(network())


@needs_rtx
def test_builds_beside_a_builder_that_lives_on_keep_their_own_warnings() -> None:
    """TensorRT knows one logger in a process; a second one is ignored, with a warning."""
    builder = load("tensorrt_rtx").api.Builder(tensorrt_callbacks.logger("tensorrt_rtx"))
    odd, plain = network(), network()
    emptied = numpy_helper.from_array(np.zeros(0, np.float32), "emptied")
    odd.graph.initializer.append(emptied)  # as in the published yolov8n.onnx
    (warning,) = build(odd).warnings
    assert "Empty initializer emptied" in warning
    assert build(plain).warnings == ()
    assert tensorrt_callbacks._listeners == []
    del builder


@needs_rtx
def test_progress_is_logged_but_not_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(tensorrt_callbacks.time, "monotonic", lambda: float(next(ticks)))
    said: list[str] = []
    build(network(), log=said.append)
    assert said[0].startswith("building the engine with TensorRT for RTX ")
    assert re.fullmatch(r"built in \d+\.\d s: \d\.\d MB, warnings: 0", said[-1])
    lines = [re.fullmatch(r"(\w[\w ]+): (\d+) of (\d+), (\d+) s so far", s) for s in said[1:-1]]
    assert len(lines) > 3
    assert all(int(line[2]) <= int(line[3]) for line in lines)
    seconds = [int(line[4]) for line in lines]
    assert min(np.diff(seconds)) >= tensorrt_callbacks.INTERVAL_S


@needs_rtx
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, BrokenPipeError])
def test_what_the_log_raises_ends_the_build_and_reaches_the_caller(
    interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt_callbacks, "INTERVAL_S", 0.0)
    said: list[str] = []

    def log(message: str) -> None:
        said.append(message)
        if len(said) == 3:
            raise interrupt

    with pytest.raises(interrupt):
        build(network(), log=log)
    assert len(said) == 3


@needs_rtx
def test_an_interrupt_from_the_keyboard_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_callbacks, "INTERVAL_S", 0.0)
    said: list[str] = []
    asked, answered = threading.Event(), threading.Event()
    stop = Progress.stop

    def and_tell(progress: Progress, why: BaseException) -> None:
        stop(progress, why)
        asked.set()

    def log(message: str) -> None:
        said.append(message)
        if len(said) == 3:  # the build is held up here until it has been asked to stop
            os.kill(os.getpid(), signal.SIGINT)
            said.append(f"asked to stop: {asked.wait(20)}")
            answered.set()

    monkeypatch.setattr(Progress, "stop", and_tell)
    with pytest.raises(KeyboardInterrupt):
        build(network(), log=log)
    assert answered.wait(20)
    assert said[3:] == ["asked to stop: True"]


@pytest.mark.parametrize("module", [None, types.ModuleType("tensorrt")], ids=["absent", "stubs"])
@pytest.mark.parametrize(
    ("library", "sentence"),
    [
        ("tensorrt", r'^TensorRT is not installed: pip install "detserve\[tensorrt\]"'),
        ("tensorrt_rtx", r'^TensorRT for RTX is not installed: pip install "detserve\[dev\]"'),
    ],
)
def test_a_missing_library_is_one_sentence_that_names_the_install(
    library: str, sentence: str, module: types.ModuleType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, module)
    with pytest.raises(BundleError, match=sentence) as raised:
        build_engine(network(), None, library=library, log=lambda message: None)
    assert "\n" not in str(raised.value)


@needs_rtx
def test_precision_is_the_graphs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tensorrt_rtx` has no other networks; TensorRT 10 has, and all three would round to TF32."""
    found = load("tensorrt_rtx")
    seen = {}

    class Recording(found.api.Builder):
        def create_network(self, flags: int = 0) -> object:
            seen["strongly typed"] = flags
            return super().create_network(flags)

        def create_builder_config(self) -> object:
            seen["config"] = super().create_builder_config()
            return seen["config"]

    monkeypatch.setattr(tensorrt_build, "load", lambda name: with_api(Builder=Recording))
    build(network())
    flag = found.api.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    assert seen["strongly typed"] == 1 << int(flag)
    assert not seen["config"].get_flag(found.api.BuilderFlag.TF32)


def with_api(**changed: object) -> Library:
    """`tensorrt_rtx` with some of its names replaced."""
    found = load("tensorrt_rtx")
    return replace(found, api=types.SimpleNamespace(**{**vars(found.api), **changed}))


def loaded(boxes: str) -> types.SimpleNamespace:
    """Stands in for a loaded engine of `network()`, with the library's own types: none loads
    without a GPU. boxes: the name of that output's type."""
    import tensorrt_rtx as trt

    mode, kind = trt.TensorIOMode, trt.DataType
    tensors = {
        "boxes": (mode.OUTPUT, kind.__members__[boxes], trt.Dims([1, ANCHORS, 4])),
        "class_ids": (mode.OUTPUT, kind.INT32, trt.Dims([1, ANCHORS])),
        "scores": (mode.OUTPUT, kind.FLOAT, trt.Dims([1, ANCHORS])),
        "image": (mode.INPUT, kind.UINT8, trt.Dims([1, 8, 12, 3])),
    }
    return types.SimpleNamespace(
        num_io_tensors=4,
        get_tensor_name=list(tensors).__getitem__,
        get_tensor_mode=lambda name: tensors[name][0],
        get_tensor_dtype=lambda name: tensors[name][1],
        get_tensor_shape=lambda name: tensors[name][2],
    )


@needs_rtx
@pytest.mark.filterwarnings("ignore:Use Deprecated in TensorRT-RTX:DeprecationWarning")
@pytest.mark.parametrize(
    ("boxes", "sentence"),
    [
        ("FLOAT", None),
        ("HALF", r"built an engine with output boxes float16 .* from a network with"),
        (None, "cannot load what it built: no kernel image"),
    ],
)
def test_on_a_gpu_the_engine_is_loaded_and_timings_are_kept(
    boxes: str | None, sentence: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Runtime:
        def __init__(self, logger: object) -> None:
            self.logger = logger

        def deserialize_cuda_engine(self, serialised: object) -> object:
            assert len(bytes(serialised)) > 1000
            error = load("tensorrt_rtx").api.ILogger.Severity.ERROR
            self.logger.log(error, "no kernel image")
            return None if boxes is None else loaded(boxes)

    library = replace(with_api(Runtime=Runtime), ahead_of_time=False)
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path))
    monkeypatch.setattr(tensorrt_build, "load", lambda name: library)
    monkeypatch.setattr(tensorrt_build, "gpu_name", lambda: "NVIDIA H200 sm90")
    if sentence is None:
        built = build(network())
        assert built.gpu == "NVIDIA H200 sm90"
    else:
        with pytest.raises(BundleError, match=sentence):
            build(network())
    assert TimingCache(library, "NVIDIA H200 sm90").path.is_file()


@needs_rtx
@pytest.mark.filterwarnings("ignore:Use Deprecated in TensorRT-RTX:DeprecationWarning")
@pytest.mark.parametrize("before", [None, b"", b"no timing cache"])
def test_a_timing_cache_is_kept_and_taken_up_and_a_damaged_one_replaced(
    before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tensorrt_rtx` measures nothing, but its caches are read and written like TensorRT's."""
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path))
    library = load("tensorrt_rtx")
    cache = TimingCache(library, "NVIDIA H200 sm90")
    version = re.escape(library.version)
    assert re.fullmatch(rf"tensorrt-rtx-{version}-NVIDIA-H200-sm90\.cache", cache.path.name)
    assert cache.path.is_relative_to(tmp_path)
    if before is not None:
        cache.path.parent.mkdir(parents=True)
        cache.path.write_bytes(before)
    builder = library.api.Builder(tensorrt_callbacks.logger("tensorrt_rtx"))
    kept = []
    for _ in range(2):
        config = builder.create_builder_config()
        cache.attach(config)
        assert config.get_timing_cache() is not None
        cache.keep(config)
        kept.append(cache.path.read_bytes())
    assert kept[0] == kept[1] != before
    assert kept[0].startswith(b"ptrt")
    assert {path.suffix for path in cache.path.parent.iterdir()} == {".cache", ".lock"}


@needs_rtx
@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolov8n-coco", "yolo11n-320", "yolox-nano"])
def test_published_yolo_checkpoints_become_engines(name: str, data: Path) -> None:
    chosen = catalogue.load(name)
    files = fetch(chosen.source, chosen.id, chosen.licence, log=lambda message: None)
    graph = family(chosen.family).export(files, chosen.canvas, chosen.labels)
    built = build(graph)
    assert built.signature[0].shape == (1, *chosen.canvas, 3)
    assert len(built.serialised) > 1_000_000


@needs_rtx
@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LABELS))
def test_small_transformers_checkpoints_become_engines(
    name: str, data: Path, tmp_path: Path
) -> None:
    graph = family(name).export(checkpoint(name, "small", tmp_path), CANVASES[name], LABELS[name])
    sizes = SHORTEST_EDGE_SIZES if CANVASES[name] is None else None
    built = build(graph, sizes)
    assert built.warnings == ()
    if sizes is not None:
        assert struct.pack("<4q", 1, *sizes.largest, 3) in built.serialised
