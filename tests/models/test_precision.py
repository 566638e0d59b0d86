"""`to_fp16`: half precision where it may be, single where it must, the same signature."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.errors import BundleError
from models.graph import OUTPUTS, GraphEditor
from models.precision import Islands, name_by_module, to_fp16

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def network(weight: float = 0.5) -> onnx.ModelProto:
    """image -> a convolution, a named activation, a convolution -> boxes, scores, class_ids."""
    nodes = [
        helper.make_node("Cast", ["image"], ["pixels"], "widen", to=FLOAT),
        helper.make_node("Transpose", ["pixels"], ["planes"], "turn", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "first"], ["features"], "stem/conv"),
        helper.make_node("Sigmoid", ["features"], ["active"], "stem/act"),
        helper.make_node("Resize", ["active", "", "scales"], ["larger"], "neck/resize"),
        helper.make_node("Conv", ["larger", "second"], ["raw"], "head/conv"),
        helper.make_node("Reshape", ["raw", "rows"], ["flat"], "head/rows"),
        helper.make_node("Mul", ["flat", "stride"], ["boxes"], "decode/mul"),
        helper.make_node("ReduceMax", ["boxes", "last"], ["scores"], "decode/best", keepdims=0),
        helper.make_node("ArgMax", ["boxes"], ["chosen"], "decode/choose", axis=2, keepdims=0),
        helper.make_node("Cast", ["chosen"], ["class_ids"], "decode/narrow", to=TensorProto.INT32),
    ]
    generator = np.random.default_rng(1)
    constants = {
        "first": generator.normal(0, weight, (4, 3, 1, 1)).astype(np.float32),
        "second": generator.normal(0, weight, (4, 4, 1, 1)).astype(np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "rows": np.array([1, -1, 4], np.int64),
        "stride": np.array(32, np.float32),
        "last": np.array([2], np.int64),
    }
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, [1, 4, 6, 3])],
        [
            helper.make_tensor_value_info("boxes", FLOAT, [1, None, 4]),
            helper.make_tensor_value_info("scores", FLOAT, [1, None]),
            helper.make_tensor_value_info("class_ids", TensorProto.INT32, [1, None]),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def types(model: onnx.ModelProto) -> dict[str, int]:
    """Element type of the first output of each node, by the node's name."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    found = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)}
    return {node.name: found[node.output[0]] for node in model.graph.node}


def test_everything_but_decoding_is_half_and_the_signature_stays() -> None:
    model = network()
    half = to_fp16(model, Islands())
    found = types(half)
    for name in ("widen", "turn", "stem/conv", "stem/act", "neck/resize", "head/conv"):
        assert found[name] == HALF, name
    for name in ("head/rows", "decode/mul", "decode/best"):
        assert found[name] == FLOAT, name
    assert [each.name for each in half.graph.output] == list(OUTPUTS)
    assert half.graph.input[0].type.tensor_type.elem_type == TensorProto.UINT8
    casts = [node.output[0] for node in half.graph.node if node.name.startswith("cast/")]
    assert casts == ["raw/as_fp32"]
    assert model == network()  # the graph that was given is as it was


@pytest.mark.parametrize(
    "islands",
    [
        pytest.param(Islands(names=(r"^stem/act",)), id="by name"),
        pytest.param(Islands(operators=frozenset({"Sigmoid"})), id="by operator"),
    ],
)
def test_an_island_computes_in_single_precision_between_two_casts(islands: Islands) -> None:
    half = to_fp16(network(), islands)
    assert types(half)["stem/act"] == FLOAT
    assert types(half)["stem/conv"] == types(half)["neck/resize"] == HALF
    casts = {node.output[0] for node in half.graph.node if node.name.startswith("cast/")}
    assert casts == {"features/as_fp32", "active/as_fp16", "raw/as_fp32"}


def test_decoding_reaches_behind_learned_weights_that_an_island_names() -> None:
    half = to_fp16(network(), Islands(names=("head/conv",)))
    found = types(half)
    assert found["head/conv"] == FLOAT
    assert found["neck/resize"] == FLOAT  # nothing learned between it and the outputs any more
    assert found["stem/conv"] == HALF


def test_the_scales_of_a_resize_stay_single() -> None:
    half = to_fp16(network(), Islands())
    (resize,) = (node for node in half.graph.node if node.op_type == "Resize")
    assert resize.input[2] == "scales"
    assert {w.name: w.data_type for w in half.graph.initializer}["scales"] == FLOAT


def test_a_weight_beyond_half_is_refused_by_name_unless_an_island_keeps_it() -> None:
    model = network(weight=1e5)
    with pytest.raises(BundleError, match=r"the weight first has values to .* beyond FP16"):
        to_fp16(model, Islands())
    kept = to_fp16(model, Islands(names=("conv",)))
    assert {w.data_type for w in kept.graph.initializer if w.name in ("first", "second")} == {FLOAT}


def test_weights_of_both_sides_are_there_in_both_types_and_unused_ones_are_dropped() -> None:
    model = network()
    model.graph.node[7].input[1] = "shared"
    model.graph.node.insert(4, helper.make_node("Mul", ["active", "shared"], ["m"], "neck/mul"))
    model.graph.node[5].input[0] = "m"
    model.graph.initializer.append(numpy_helper.from_array(np.array(2, np.float32), "shared"))
    half = to_fp16(model, Islands())
    kinds = {w.name: w.data_type for w in half.graph.initializer}
    assert kinds["shared"] == FLOAT
    assert kinds["shared/fp16"] == HALF
    assert "first" not in kinds
    assert kinds["first/fp16"] == HALF


def test_nodes_are_named_by_their_module_and_added_ones_by_what_they_make() -> None:
    model = network()
    model.graph.node[2].metadata_props.add(
        key="pkg.torch.onnx.name_scopes", value="['', 'model.0', 'model.0.conv', 'conv2d']"
    )
    model.graph.node[3].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'act']")
    name_by_module(model)
    names = [node.name for node in model.graph.node]
    assert names[1:4] == ["/turn", "model.0.conv/stem/conv", "/stem/act"]


def test_nodes_that_the_editor_adds_have_names(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "published.onnx")
    editor = GraphEditor(tmp_path / "published.onnx")
    made = editor.add("Relu", "boxes")
    assert editor.model.graph.node[-1].name == made
