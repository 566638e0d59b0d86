"""`GraphEditor` on tiny graphs: each edit does what numpy says, on every opset in use."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.engines.onnxruntime_cpu import OnnxRuntimeEngine
from models.errors import BundleError
from models.graph import IMAGE, OUTPUTS, GraphEditor

HEIGHT, WIDTH = 4, 6
ANCHORS, CLASSES = 12, 3  # of the tiny network: 4 + 3 values for each of 12 anchors
OPSETS = (11, 12, 13, 17, 18, 20, 21)


def network(path: Path, opset: int = 17) -> Path:
    """Published form: `pixels` float32 [1, 3, 4, 6] in, the same 72 values as [1, 6, 12] out."""
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["pixels", "shape"], ["values"])],
        "tiny",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [1, 3, HEIGHT, WIDTH])],
        [helper.make_tensor_value_info("values", TensorProto.FLOAT, [1, 6, ANCHORS])],
        [numpy_helper.from_array(np.array([1, 6, ANCHORS], np.int64), "shape")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(opset, 7)
    )
    onnx.save(model, path)
    return path


def run(model: onnx.ModelProto, folder: Path, image: np.ndarray) -> dict[str, np.ndarray]:
    onnx.save(model, folder / "edited.onnx")
    return OnnxRuntimeEngine(folder / "edited.onnx", threads=1).infer(image)


def noise() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, (1, HEIGHT, WIDTH, 3), np.uint8)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("by_anchor", [False, True])
def test_an_edited_graph_gives_what_numpy_gives_on_every_opset(
    tmp_path: Path, opset: int, by_anchor: bool
) -> None:
    editor = GraphEditor(network(tmp_path / "tiny.onnx", opset))
    editor.take_uint8(swap_red_and_blue=False, divide_by=255)
    rows = editor.add("Transpose", "values", perm=[0, 2, 1])
    boxes = editor.corners(editor.columns(rows, 0, 2, axis=2), editor.columns(rows, 1, 3, axis=2))
    scores = (
        editor.columns(rows, 3, 6, axis=2) if by_anchor else editor.columns("values", 3, 6, axis=1)
    )
    model = editor.finish(boxes=boxes, class_scores=scores, class_axis=2 if by_anchor else 1)
    image = noise()
    found = run(model, tmp_path, image)

    values = image.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    values = values.reshape(1, 6, ANCHORS).transpose(0, 2, 1)
    centres, half = values[..., 0:2], values[..., 1:3] * np.float32(0.5)
    expected = {
        "boxes": np.concatenate([centres - half, centres + half], axis=2),
        "scores": values[..., 3:].max(axis=2),
        "class_ids": values[..., 3:].argmax(axis=2).astype(np.int32),
    }
    assert tuple(found) == OUTPUTS
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("divide_by", [None, 255])
def test_the_published_input_gets_the_channels_and_range_it_wants(
    tmp_path: Path, swap: bool, divide_by: float | None
) -> None:
    editor = GraphEditor(network(tmp_path / "tiny.onnx"))
    editor.take_uint8(swap_red_and_blue=swap, divide_by=divide_by)
    (given,) = editor.model.graph.input
    assert given.name == IMAGE
    assert given.type.tensor_type.elem_type == TensorProto.UINT8
    assert [dim.dim_value for dim in given.type.tensor_type.shape.dim] == [1, HEIGHT, WIDTH, 3]
    flat = editor.constant(np.array([1, HEIGHT * WIDTH, 3], np.int64))
    by_pixel = editor.add("Reshape", editor.add("Transpose", "pixels", perm=[0, 2, 3, 1]), flat)
    # the three channels as the "scores" of each pixel, and as its box
    boxes = editor.add("Concat", by_pixel, editor.columns(by_pixel, 0, 1, axis=2), axis=2)
    model = editor.finish(boxes=boxes, class_scores=by_pixel, class_axis=2)
    image = noise()
    expected = (image[..., ::-1] if swap else image).reshape(1, -1, 3).astype(np.float32)
    if divide_by is not None:
        expected /= np.float32(divide_by)
    np.testing.assert_array_equal(run(model, tmp_path, image)["boxes"][..., :3], expected)


def test_of_equal_class_scores_the_first_class_is_taken(tmp_path: Path) -> None:
    editor = GraphEditor(network(tmp_path / "tiny.onnx"))
    editor.take_uint8(swap_red_and_blue=False, divide_by=None)
    rows = editor.add("Transpose", "values", perm=[0, 2, 1])
    model = editor.finish(boxes=editor.columns(rows, 0, 4, axis=2), class_scores=rows, class_axis=2)
    found = run(model, tmp_path, np.full((1, HEIGHT, WIDTH, 3), 9, np.uint8))
    np.testing.assert_array_equal(found["class_ids"], np.zeros((1, ANCHORS)))
    np.testing.assert_array_equal(found["scores"], np.full((1, ANCHORS), 9))


INPUTS, VALUES = {"pixels": [1, 3, HEIGHT, WIDTH]}, {"values": [1, 6, ANCHORS]}


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        pytest.param({"images": [1, 3, HEIGHT, WIDTH]}, VALUES, id="another input name"),
        pytest.param({"pixels": [1, 3, WIDTH, HEIGHT]}, VALUES, id="another canvas"),
        pytest.param(INPUTS, {"output0": [1, 6, ANCHORS]}, id="another output name"),
        pytest.param(INPUTS, {"values": [1, 7, ANCHORS]}, id="another label count"),
        pytest.param(INPUTS, VALUES | {"more": [1]}, id="an output missing"),
        pytest.param(INPUTS | {"mask": [1]}, VALUES, id="an input missing"),
    ],
)
def test_a_graph_of_other_inputs_or_outputs_is_refused_with_both(
    tmp_path: Path, inputs: dict[str, list[int]], outputs: dict[str, list[int]]
) -> None:
    editor = GraphEditor(network(tmp_path / "tiny.onnx"))
    editor.require(inputs=INPUTS, outputs=VALUES)
    with pytest.raises(BundleError) as caught:
        editor.require(inputs=inputs, outputs=outputs)
    assert str(caught.value) == (
        f"the checkpoint's graph takes {INPUTS} and returns {VALUES}; "
        f"its family expects {inputs} and {outputs}"
    )


def test_a_dynamic_canvas_is_not_the_canvas_that_was_asked_for(tmp_path: Path) -> None:
    model = onnx.load(network(tmp_path / "tiny.onnx"))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    onnx.save(model, tmp_path / "dynamic.onnx")
    with pytest.raises(BundleError, match=r"takes \{'pixels': \[1, 3, 0, 6\]\}"):
        GraphEditor(tmp_path / "dynamic.onnx").require(inputs=INPUTS, outputs=VALUES)


@pytest.mark.parametrize("content", [b"", b"not a model"], ids=["empty", "text"])
def test_a_file_the_engine_cannot_load_is_a_bundle_error_that_names_it(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "engine.onnx").write_bytes(content)
    with pytest.raises(BundleError, match=r"ONNX Runtime cannot load engine\.onnx"):
        OnnxRuntimeEngine(tmp_path / "engine.onnx", threads=1)


def test_the_engine_knows_its_canvas(tmp_path: Path) -> None:
    editor = GraphEditor(network(tmp_path / "tiny.onnx"))
    editor.take_uint8(swap_red_and_blue=False, divide_by=None)
    rows = editor.add("Transpose", "values", perm=[0, 2, 1])
    model = editor.finish(boxes=editor.columns(rows, 0, 4, axis=2), class_scores=rows, class_axis=2)
    onnx.save(model, tmp_path / "edited.onnx")
    assert OnnxRuntimeEngine(tmp_path / "edited.onnx", threads=1).canvas == (HEIGHT, WIDTH)
