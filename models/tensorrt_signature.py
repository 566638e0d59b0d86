"""What a TensorRT network or engine takes and returns, and that it is what models/graph.py says.

Asked before minutes of building, after them, and whenever an engine is loaded, since an engine that
takes another input answers with other boxes and no error.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from models.errors import BundleError
from models.graph import IMAGE, OUTPUTS, SizeRange

if TYPE_CHECKING:
    import tensorrt as trt

# TensorRT's name -> numpy's, where they differ by more than case
_DTYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Tensor:
    """An input or output of an engine. dtype: numpy's name; shape: -1 where it is dynamic."""

    name: str
    mode: Literal["input", "output"]
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.mode} {self.name} {self.dtype} {list(self.shape)}"


def check_signature(signature: Iterable[Tensor], sizes: SizeRange | None) -> None:
    """The inputs and outputs are those of models/graph.py, in any order.

    sizes: None: height and width must be fixed; otherwise both must be dynamic.

    Raises:
        BundleError: otherwise; the sentence gives what was found and what is expected.
    """
    found = {tensor.name: tensor for tensor in signature}
    boxes, scores, class_ids = OUTPUTS
    anchors = found[boxes].shape[1:2] if boxes in found else ()
    canvas = found[IMAGE].shape[1:3] if IMAGE in found else ()
    expected = {
        Tensor(IMAGE, "input", "uint8", (1, *canvas, 3)),
        Tensor(boxes, "output", "float32", (1, *anchors, 4)),
        Tensor(scores, "output", "float32", (1, *anchors)),
        Tensor(class_ids, "output", "int32", (1, *anchors)),
    }
    if set(found.values()) != expected:
        raise BundleError(
            f"the engine has {listed(found.values())}; models/graph.py says "
            f"{IMAGE} uint8 [1, H, W, 3] in and {boxes} float32 [1, A, 4], "
            f"{scores} float32 [1, A], {class_ids} int32 [1, A] out"
        )
    dynamic = [side == -1 for side in canvas]
    if sizes is None and any(dynamic):
        raise BundleError(f"the graph's {IMAGE} is of dynamic size: say for which sizes to build")
    if sizes is not None and not all(dynamic):
        raise BundleError(
            f"the graph's {IMAGE} is {list(found[IMAGE].shape)}: only a dynamic height and width "
            f"can be built for a range of sizes"
        )
    if sizes is None and -1 in anchors:
        raise BundleError("how many boxes the engine returns depends on what the image shows")


def network_signature(network: "trt.INetworkDefinition") -> tuple[Tensor, ...]:
    inputs = [network.get_input(number) for number in range(network.num_inputs)]
    outputs = [network.get_output(number) for number in range(network.num_outputs)]
    return (
        *(Tensor(t.name, "input", _dtype(t.dtype), _shape(t.shape)) for t in inputs),
        *(Tensor(t.name, "output", _dtype(t.dtype), _shape(t.shape)) for t in outputs),
    )


def engine_signature(engine: "trt.ICudaEngine") -> tuple[Tensor, ...]:
    """The inputs and outputs of a loaded engine, in its order."""
    names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
    return tuple(
        Tensor(
            name,
            "input" if engine.get_tensor_mode(name).name == "INPUT" else "output",
            _dtype(engine.get_tensor_dtype(name)),
            _shape(engine.get_tensor_shape(name)),
        )
        for name in names
    )


def _shape(dims: "trt.Dims") -> tuple[int, ...]:
    return tuple(dims[axis] for axis in range(len(dims)))


def _dtype(dtype: "trt.DataType") -> str:
    name: str = dtype.name
    return _DTYPES.get(name, name.lower())


def listed(tensors: Iterable[Tensor]) -> str:
    return ", ".join(str(tensor) for tensor in tensors) or "no tensors"
