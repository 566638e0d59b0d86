"""Batches: several canvases in one engine call, where that changes no bit of any answer.

Published graphs hold the batch size of their export, 1, in two kinds of places: the shapes of
inputs and outputs, and the constant shapes of Reshape nodes. `batched` frees both; whether the
graph then computes what it computed (YOLOv10's selection, for one, flattens the batch away) is not
argued but tried: `prove` compares every batch size that will be served with canvases that go alone.
"""

import numpy as np
import onnx
from onnx import numpy_helper

from models.engine import Engine
from models.errors import BundleError

BATCH = "batch"  # the free dimension's name in the graph
SEED = 0


def batched(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a bundle's graph (models/graph.py) that takes any number of canvases at a time.

    Raises:
        BundleError: the canvas is of no fixed size, so that images do not fit into one batch.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    if any(dim.dim_param for dim in graph.input[0].type.tensor_type.shape.dim):
        raise BundleError("its canvas follows the image, and canvases of one size make a batch")
    constants = _constants(graph)
    for node in graph.node:
        if node.op_type != "Reshape" or node.input[1] not in constants:
            continue
        shape = constants[node.input[1]]
        if shape.size > 1 and shape[0] == 1:
            # 0 takes the dimension of the input; a shape may have several readers, so it stays
            free = numpy_helper.from_array(
                np.array([0, *shape[1:]], np.int64), f"{node.output[0]}/{BATCH}"
            )
            graph.initializer.append(free)
            node.input[1] = free.name
    read = {name for node in graph.node for name in node.input}
    kept = [each for each in graph.initializer if each.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = BATCH
    del graph.value_info[:]  # shapes of the batch that was
    return made


def prove(engine: Engine, canvas: tuple[int, int], largest: int) -> None:
    """Every batch from 2 to `largest` gives each canvas the bits that it gets alone.

    canvas: (height, width). The canvases are seeded noise under a gradient: each another, and none
    that a network answers with nothing but zeros.

    Raises:
        BundleError: one does not, or the engine cannot run it; the sentence says at which size.
    """
    height, width = canvas
    random = np.random.default_rng(SEED)
    ramp = np.linspace(0, 160, width, dtype=np.float32)[None, None, :, None]
    noise = random.integers(0, 96, (largest, height, width, 3)).astype(np.float32)
    images = (noise + ramp).astype(np.uint8)
    alone = [_copy(engine.infer(image[None])) for image in images]
    for size in range(2, largest + 1):
        try:
            together = engine.infer(images[:size])
        except Exception as error:  # engines have no common base of what they raise
            raise BundleError(f"a batch of {size} does not run: {_first_line(error)}") from error
        for index in range(size):
            for name, values in alone[index].items():
                # shapes first: a graph that flattens the batch away has another
                whole = together[name]
                same = len(whole) == size and np.array_equal(whole[index : index + 1], values)
                if not same:
                    raise BundleError(
                        f"in a batch of {size}, {name} are not the bits that a canvas gets alone"
                    )


def split(outputs: dict[str, np.ndarray], index: int) -> dict[str, np.ndarray]:
    """One canvas's part of a batch's outputs, itself a batch of one."""
    return {name: values[index : index + 1] for name, values in outputs.items()}


def _constants(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    found = {each.name: each for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t
    return {
        name: numpy_helper.to_array(tensor)
        for name, tensor in found.items()
        if tensor.data_type == onnx.TensorProto.INT64
    }


def _copy(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """An engine may overwrite what it returned."""
    return {name: values.copy() for name, values in outputs.items()}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
