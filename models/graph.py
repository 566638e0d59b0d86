"""Edits to ONNX graphs: preprocessing put in front of a published graph, decoding put behind it.

The engine then takes the uint8 canvas and returns one box, score and class an anchor, so that no
cast, scale, transpose or class search runs in Python on every request.

Both sides of the edited graph are the same for all families that use it:

    image      uint8   [1, H, W, 3]   RGB canvas
    boxes      float32 [1, A, 4]      xyxy in canvas pixels
    scores     float32 [1, A]         of the anchor's best class, 0..1
    class_ids  int32   [1, A]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper

from models.errors import BundleError

IMAGE = "image"
OUTPUTS = ("boxes", "scores", "class_ids")


@dataclass(frozen=True)
class SizeRange:
    """The sizes of a dynamic `image` that an engine is built for. All are (height, width) in
    pixels; height and width vary each for itself, and `usual` is the size it is tuned at.

    Raises:
        ValueError: they are not in this order.
    """

    smallest: tuple[int, int]
    usual: tuple[int, int]
    largest: tuple[int, int]

    def __post_init__(self) -> None:
        for sides in zip(self.smallest, self.usual, self.largest, strict=True):
            if not 1 <= sides[0] <= sides[1] <= sides[2]:
                raise ValueError(f"{sides} are not from the smallest to the largest")


class GraphEditor:
    """Adds nodes before and after a graph. `add` and `constant` return the name they made.

    Raises:
        BundleError: `path` is no ONNX file.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.model = onnx.load(path)
        except DecodeError as error:
            raise BundleError(f"{path.name} is not an ONNX file: {error}") from error
        self._made = 0

    @property
    def _opset(self) -> int:
        versions = {item.domain or "ai.onnx": int(item.version) for item in self.model.opset_import}
        return versions["ai.onnx"]

    def require(self, *, inputs: dict[str, list[int]], outputs: dict[str, list[int]]) -> None:
        """Check the graph's own inputs and outputs.

        Raises:
            BundleError: a name or a shape is another; the sentence gives both.
        """
        graph = self.model.graph
        found = [
            {
                value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
                for value in values
            }
            for values in (graph.input, graph.output)
        ]
        if found != [inputs, outputs]:
            raise BundleError(
                f"the checkpoint's graph takes {found[0]} and returns {found[1]}; "
                f"its family expects {inputs} and {outputs}"
            )

    def constant(self, value: np.ndarray) -> str:
        name = self._name("constant")
        self.model.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append one node with one output."""
        name = self._name(operator.lower())
        self._append(operator, inputs, [name], attributes)
        return name

    def add_pair(self, operator: str, *inputs: str, **attributes: Any) -> tuple[str, str]:
        """Append one node with two outputs, such as TopK."""
        names = self._name(operator.lower()), self._name(operator.lower())
        self._append(operator, inputs, names, attributes)
        return names

    def take_uint8(self, *, swap_red_and_blue: bool, divide_by: float | None) -> None:
        """Replace the graph's float input [1, 3, H, W] by `image`, uint8 [1, H, W, 3] RGB."""
        graph = self.model.graph
        (published,) = graph.input
        _, channels, height, width = [dim.dim_value for dim in published.type.tensor_type.shape.dim]
        body = list(graph.node)
        del graph.node[:]
        tensor = self.add("Cast", IMAGE, to=TensorProto.FLOAT)  # TensorRT moves no uint8 about
        if swap_red_and_blue:
            reverse = self.constant(np.array([2, 1, 0], np.int64))
            tensor = self.add("Gather", tensor, reverse, axis=3)
        tensor = self.add("Transpose", tensor, perm=[0, 3, 1, 2])
        if divide_by is not None:
            tensor = self.add("Div", tensor, self.constant(np.array(divide_by, np.float32)))
        graph.node[-1].output[0] = published.name
        graph.node.extend(body)
        image = helper.make_tensor_value_info(
            IMAGE, TensorProto.UINT8, [1, height, width, channels]
        )
        del graph.input[:]
        graph.input.append(image)

    def corners(self, centres: str, sizes: str) -> str:
        """xyxy [1, A, 4] from centres [1, A, 2] and sizes [1, A, 2]."""
        half = self.add("Mul", sizes, self.constant(np.array(0.5, np.float32)))
        return self.add(
            "Concat", self.add("Sub", centres, half), self.add("Add", centres, half), axis=2
        )

    def columns(self, tensor: str, first: int, last: int, *, axis: int) -> str:
        """Columns `first` up to, not including, `last` along `axis`."""
        bounds = [self.constant(np.array([value], np.int64)) for value in (first, last, axis)]
        return self.add("Slice", tensor, *bounds)

    def finish(self, *, boxes: str, class_scores: str, class_axis: int) -> onnx.ModelProto:
        """Reduce to each anchor's best class, name the outputs and check the model.

        boxes: xyxy [1, A, 4]; class_scores: [1, A, C] or [1, C, A], C along `class_axis`.
        """
        best = self.maximum(class_scores, axis=class_axis)
        chosen = self.add("ArgMax", class_scores, axis=class_axis, keepdims=0)
        chosen = self.add("Cast", chosen, to=TensorProto.INT32)
        return self.name_outputs(boxes, best, chosen)

    def maximum(self, tensor: str, *, axis: int) -> str:
        """The greatest value along `axis`, which goes away."""
        if self._opset < 18:  # from 18 on the axes are an input
            return self.add("ReduceMax", tensor, axes=[axis], keepdims=0)
        axes = self.constant(np.array([axis], np.int64))
        return self.add("ReduceMax", tensor, axes, keepdims=0)

    def name_outputs(self, boxes: str, scores: str, class_ids: str) -> onnx.ModelProto:
        """Make these the graph's only outputs, and check the model.

        boxes: xyxy [1, A, 4]; scores: [1, A]; class_ids: int32 [1, A].
        """
        graph = self.model.graph
        del graph.output[:]
        kinds = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT32)
        for made, name, kind in zip((boxes, scores, class_ids), OUTPUTS, kinds, strict=True):
            self._append("Identity", [made], [name], {})
            shape = [1, None, 4] if name == "boxes" else [1, None]
            graph.output.append(helper.make_tensor_value_info(name, kind, shape))
        onnx.checker.check_model(self.model)
        return self.model

    def _append(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Any
    ) -> None:
        node = helper.make_node(operator, inputs, outputs, name=outputs[0], **attributes)
        self.model.graph.node.append(node)

    def _name(self, stem: str) -> str:
        self._made += 1
        return f"detserve/{stem}_{self._made}"
