"""FP16 in the graph itself, with FP32 islands: what an FP16 bundle is built from.

Why in the graph: TensorRT 11 knows strongly typed networks only, so which operator computes in half
is the graph's to say, and the same graph can then be judged on any machine. Half has 11 bits: a
coordinate above 512 pixels is 0.5 coarse and a fraction near 1 moves a box by 0.65 of 1333 pixels,
so decoding always stays FP32; a family names what else of its architecture does.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.errors import BundleError

Precision = Literal["fp16", "fp32"]

_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_FP32_ONLY = frozenset({"Range"})  # ONNX has it in no half
# inputs that ONNX keeps in FLOAT whatever the tensor's type: Resize's roi and scales
_ALWAYS_FP32 = {"Resize": (1, 2)}


@dataclass(frozen=True)
class Islands:
    """What of a family's graph computes in FP32 in an FP16 bundle, beside decoding: the operators
    from the last learned weights to the outputs.

    names: regular expressions, searched in the nodes' names. A node exported from torch is named
        by its module, `model.22.dfl/node_softmax`; one that belongs to none begins with `/`.
    operators: ONNX operators, such as `Softmax`.
    """

    names: tuple[str, ...] = ()
    operators: frozenset[str] = frozenset()

    def holds(self, node: onnx.NodeProto) -> bool:
        """Whether the node is named, by itself or by its operator."""
        return node.op_type in self.operators or any(
            re.search(pattern, node.name) for pattern in self.names
        )


def to_fp16(model: onnx.ModelProto, islands: Islands) -> onnx.ModelProto:
    """The graph in FP16 but for its islands, inputs and outputs; casts stand where the two meet.

    Raises:
        BundleError: a weight outside the islands is beyond FP16's 65504.
    """
    converted = onnx.ModelProto()
    converted.CopyFrom(model)
    return _Conversion(converted, islands).run()


class _Conversion:
    """One graph being converted in place."""

    def __init__(self, model: onnx.ModelProto, islands: Islands) -> None:
        self._model, self._graph = model, model.graph
        self._weights = {each.name: each for each in self._graph.initializer}
        self._floats = _float_tensors(model)
        self._half_nodes = self._nodes_in_half(islands)
        self._half = {  # tensors that are made in FP16
            name for index in self._half_nodes for name in self._graph.node[index].output
        } & self._floats
        self._casts: dict[tuple[str, int], str] = {}
        self._made: dict[str, onnx.NodeProto] = {}

    def run(self) -> onnx.ModelProto:
        graph = self._graph
        nodes: list[onnx.NodeProto] = []
        for index, node in enumerate(graph.node):
            for place, name in enumerate(node.input):
                if name in self._floats:
                    node.input[place] = self._in_type(name, index, place, nodes)
            if index in self._half_nodes:
                _retype(node)
            nodes.append(node)
        outputs = {each.name for each in graph.output} & self._half
        for node in nodes:  # an output keeps its name and its type
            for place, name in enumerate(node.output):
                if name in outputs:
                    node.output[place] = _in_half(name)
            for place, name in enumerate(node.input):
                if name in outputs:
                    node.input[place] = _in_half(name)
        nodes += [_cast(_in_half(name), name, TensorProto.FLOAT) for name in sorted(outputs)]
        del graph.node[:]
        graph.node.extend(nodes)
        self._drop_unused_weights()
        del graph.value_info[:]
        onnx.checker.check_model(self._model, full_check=True)
        return self._model

    def _nodes_in_half(self, islands: Islands) -> frozenset[int]:
        kept = self._decoding(islands)
        return frozenset(
            index
            for index, node in enumerate(self._graph.node)
            if index not in kept
            and not islands.holds(node)
            and node.op_type not in _FP32_ONLY
            and self._floats.intersection(node.output)
        )

    def _decoding(self, islands: Islands) -> set[int]:
        """Nodes between the outputs and the last learned weights, which stop the walk unless an
        island names them (the distribution's expectation of YOLO is published as a convolution)."""
        maker = {name: i for i, node in enumerate(self._graph.node) for name in node.output}
        pending = [each.name for each in self._graph.output]
        found: set[int] = set()
        while pending:
            index = maker.get(pending.pop())
            if index is None or index in found:
                continue
            node = self._graph.node[index]
            learned = node.op_type in _WEIGHTED and self._weights.keys() & set(node.input)
            if not learned or islands.holds(node):
                found.add(index)
                pending += node.input
        return found

    def _in_type(self, name: str, index: int, place: int, nodes: list[onnx.NodeProto]) -> str:
        """The tensor in the type that input `place` of node `index` takes; casts go to `nodes`."""
        node = self._graph.node[index]
        halved = index in self._half_nodes or (
            node.op_type == "Cast" and name in self._half  # a cast takes what there is
        )
        halved = halved and place not in _ALWAYS_FP32.get(node.op_type, ())
        if halved == (name in self._half):
            return name
        kind = TensorProto.FLOAT16 if halved else TensorProto.FLOAT
        if (name, kind) not in self._casts:
            if name in self._weights:
                self._casts[name, kind] = self._halved_weight(name)
            else:
                made = f"{name}/as_{'fp16' if halved else 'fp32'}"
                nodes.append(_cast(name, made, kind))
                self._casts[name, kind] = made
        return self._casts[name, kind]

    def _halved_weight(self, name: str) -> str:
        values = numpy_helper.to_array(self._weights[name])
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16)
        if np.isinf(halves).any() and not np.isinf(values).any():
            raise BundleError(
                f"the weight {name} has values to {np.abs(values).max():.3g}, beyond FP16: its "
                f"family must keep what uses it in FP32"
            )
        self._graph.initializer.append(numpy_helper.from_array(halves, _in_half(name)))
        return _in_half(name)

    def _drop_unused_weights(self) -> None:
        used = {name for node in self._graph.node for name in node.input}
        kept = [each for each in self._graph.initializer if each.name in used]
        del self._graph.initializer[:]
        self._graph.initializer.extend(kept)


def name_by_module(model: onnx.ModelProto) -> None:
    """Put the torch module that a node was exported from in front of its name, so that islands can
    be named. The exporter keeps it as metadata, which folding drops."""
    for node in model.graph.node:
        node.name = f"{_module(node)}/{node.name}"


def _module(node: onnx.NodeProto) -> str:
    """Dotted path of the module; empty for the network's own code."""
    for each in node.metadata_props:
        if each.key == "pkg.torch.onnx.name_scopes":
            scopes: list[str] = re.findall(r"'([^']*)'", each.value)[:-1]  # the last is the node
            return scopes[-1] if scopes else ""
    return ""


def _float_tensors(model: onnx.ModelProto) -> set[str]:
    """Names of all FLOAT tensors, weights included."""
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    values: Iterable[onnx.ValueInfoProto] = (*graph.value_info, *graph.input, *graph.output)
    found = {v.name for v in values if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    return found | {w.name for w in graph.initializer if w.data_type == TensorProto.FLOAT}


def _retype(node: onnx.NodeProto) -> None:
    """Attributes that give a node's own output type."""
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.FLOAT16
        elif attribute.name == "value" and attribute.t.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(attribute.t).astype(np.float16)
            attribute.t.CopyFrom(numpy_helper.from_array(values))


def _cast(source: str, target: str, kind: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], name=f"cast/{target}", to=kind)


def _in_half(name: str) -> str:
    return f"{name}/fp16"
