"""Batches change no bit of any answer, and graphs that would are refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models import building, catalogue
from models.batching import batched, split
from models.engines.choice import open_engine
from models.engines.onnxruntime_cpu import OnnxRuntimeEngine
from models.errors import BundleError
from models.graph import IMAGE, OUTPUTS
from models.images import decode

CANVAS = (8, 6)  # height, width: what the made graphs take


@pytest.mark.parametrize("name", ["yolox-nano", "yolov8n-coco", "yolo11n-320"])
@pytest.mark.parametrize("threads", [1, 2])
def test_real_images_get_the_same_bits_alone_and_in_any_place_of_a_batch(
    name: str, threads: int, data: Path
) -> None:
    bundle = building.ensure(catalogue.load(name), "onnxruntime", "fp32", log=print)
    paths = sorted((data / "coco128" / "images").glob("*.jpg"))[:3]
    canvases = [bundle.place(decode(path.read_bytes(), 10**8))[1] for path in paths]
    single, engine = bundle.engine(threads), bundle.engine(threads, max_batch=3)
    alone = [single.infer(canvas) for canvas in canvases]
    assert len({values["scores"].tobytes() for values in alone}) == 3
    for order in ([0], [0, 1], [2, 1, 0], [1, 1, 2]):
        together = engine.infer(np.concatenate([canvases[place] for place in order]))
        for index, place in enumerate(order):
            for output, values in split(together, index).items():
                np.testing.assert_array_equal(values, alone[place][output])


def test_images_that_share_what_they_should_not_are_noticed(tmp_path: Path) -> None:
    """Scores less the mean over the batch, as by a normalisation that was exported for training."""
    path = made(tmp_path, mixing=True)
    OnnxRuntimeEngine(path, threads=1)
    sentence = "in a batch of 2, boxes are not the bits that a canvas gets alone"
    with pytest.raises(BundleError, match=sentence):
        OnnxRuntimeEngine(path, threads=1, max_batch=3)


def test_a_graph_that_flattens_the_batch_away_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path, shape=(1, -1), first=(-1, 3))
    OnnxRuntimeEngine(path, threads=1)
    with pytest.raises(BundleError, match="batch of 2"):
        OnnxRuntimeEngine(path, threads=1, max_batch=2)


def test_a_right_one_is_taken_at_every_size(tmp_path: Path) -> None:
    engine = OnnxRuntimeEngine(made(tmp_path), threads=1, max_batch=4)
    images = np.random.default_rng(1).integers(0, 256, (4, *CANVAS, 3), np.uint8)
    for size in range(1, 5):
        found = engine.infer(images[:size])
        assert {name: len(values) for name, values in found.items()} == dict.fromkeys(OUTPUTS, size)


def test_images_of_any_size_make_no_batch(tmp_path: Path) -> None:
    model = onnx.load(made(tmp_path))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "height"
    with pytest.raises(BundleError, match="its canvas follows the image"):
        batched(model)


@pytest.mark.parametrize("engine", ["onnxruntime-cuda", "tensorrt"])
def test_engines_on_which_batches_are_not_proved_refuse_them(engine, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=f"engine {engine} runs one canvas at a time"):
        open_engine(engine, tmp_path / "none", largest=CANVAS, threads=1, max_batch=2)


def test_the_sentence_names_the_checkpoint_and_what_was_asked_for(
    data: Path,
) -> None:
    bundle = building.ensure(catalogue.load("yolox-nano"), "onnxruntime", "fp32", log=print)
    broken = replace(bundle, manifest=bundle.manifest.model_copy(update={"engine": "tensorrt"}))
    with pytest.raises(BundleError, match="max_batch 2 of yolox-nano: engine tensorrt"):
        broken.engine(threads=1, max_batch=2)


def made(
    folder: Path,
    *,
    mixing: bool = False,
    first: tuple[int, ...] | None = None,
    shape: tuple[int, ...] = (1, -1),
) -> Path:
    """A graph of models/graph.py's signature: an anchor a row, its score their sum."""
    height, width = CANVAS
    nodes, constants = [], {}

    def constant(name: str, value: object, dtype: type) -> str:
        constants[name] = numpy_helper.from_array(np.array(value, dtype), name)
        return name

    def add(operator: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    pixels = add("Cast", [IMAGE], "pixels", to=TensorProto.FLOAT)
    if first is not None:
        pixels = add("Reshape", [pixels, constant("first", first, np.int64)], "flat")
        rows = add("ReduceSum", [pixels, constant("axis", [1], np.int64)], "sums", keepdims=0)
    else:
        axes = constant("axes", [2, 3], np.int64)
        rows = add("ReduceSum", [pixels, axes], "sums", keepdims=0)
    scores = add("Reshape", [rows, constant("row", shape, np.int64)], "rows")
    if mixing:
        mean = add("ReduceMean", [scores], "mean", axes=[0], keepdims=1)
        both = add("Add", [scores, mean], "both")
        scores = both
    add("Identity", [scores], "scores")
    add("Cast", [scores], "class_ids", to=TensorProto.INT32)
    column = add("Unsqueeze", [scores, constant("last", [2], np.int64)], "column")
    add("Concat", [column] * 4, "boxes", axis=2)
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(IMAGE, TensorProto.UINT8, [1, height, width, 3])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, None, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, None]),
            helper.make_tensor_value_info("class_ids", TensorProto.INT32, [1, None]),
        ],
        list(constants.values()),
    )
    path = folder / "made.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path
