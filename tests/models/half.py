"""An FP16 graph as FP32 operators that round each result to half: FP16's answers on any CPU.

ONNX Runtime's CPU provider runs most FP16 operators in FP32 and drops the rounding between them,
so running the FP16 graph there would judge the weights alone. Explicit casts it keeps.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def rounding(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph; accumulation inside an operator is FP32, as on a GPU's tensor cores."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    types = onnx.shape_inference.infer_shapes(made, strict_mode=True).graph
    half = {
        value.name
        for value in types.value_info
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16
    }
    graph = made.graph
    for weight in graph.initializer:
        if weight.data_type == TensorProto.FLOAT16:
            values = numpy_helper.to_array(weight).astype(np.float32)
            weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    nodes = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
            elif attribute.name == "value" and attribute.t.data_type == TensorProto.FLOAT16:
                values = numpy_helper.to_array(attribute.t).astype(np.float32)
                attribute.t.CopyFrom(numpy_helper.from_array(values))
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in half:
                node.output[place] = f"{name}/exact"
                nodes.append(
                    helper.make_node(
                        "Cast", [f"{name}/exact"], [f"{name}/rounded"], to=TensorProto.FLOAT16
                    )
                )
                nodes.append(
                    helper.make_node("Cast", [f"{name}/rounded"], [name], to=TensorProto.FLOAT)
                )
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    onnx.checker.check_model(made, full_check=True)
    return made
