"""`folded`: an exported graph with everything constant computed.

Why: raw exports hold what TensorRT cannot parse, and only in their constant parts (cubic Resize,
doubles, ScatterElements).
"""

import tempfile
from pathlib import Path

import onnx

from models.errors import BundleError
from models.graph import IMAGE, OUTPUTS
from models.precision import name_by_module


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph after ONNX Runtime's basic optimisations, which fold constants. Nodes are named by
    the torch module they came from, which an FP16 bundle's islands go by; folding drops the rest.

    Raises:
        BundleError: other than ONNX's own operators are left, or the signature is not that of
            models/graph.py.
    """
    import onnxruntime  # type: ignore[import-untyped]

    name_by_module(model)
    with tempfile.TemporaryDirectory(prefix="detserve-fold-") as scratch:
        target = Path(scratch) / "folded.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        result = onnx.load(target)
    foreign = {node.domain for node in result.graph.node} - {"", "ai.onnx"}
    sides = [each.name for each in (*result.graph.input, *result.graph.output)]
    if foreign or sides != [IMAGE, *OUTPUTS]:
        raise BundleError(f"folding left {sides} with operators of {sorted(foreign)}")
    own = [each for each in result.opset_import if each.domain in ("", "ai.onnx")]
    del result.opset_import[:]
    result.opset_import.extend(own)
    return result
