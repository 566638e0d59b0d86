"""What deformable attention samples, without ONNX's GridSample: padding, one Gather, one MatMul.

Only the exporting process imports this module: it needs torch. TensorRT 10.14 and 11.1 are reported
to get GridSample in FP32 deformable attention wrong without a word (TensorRT #4813), so no exported
graph holds it (docs/decisions/deformable-attention.md).
"""

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor  # type: ignore[import-not-found,unused-ignore]


def sampled(values: Tensor, size: tuple[int, int], places: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of bilinear samples of one feature level: float32 [Q, heads, depth].

    As `grid_sample` with zeros beyond the border and `align_corners=False`: a cell's value stands
    at its centre.

    values: float32 [h * w, heads, depth], rows first; size: h and w, which may be symbolic.
    places: float32 [Q, heads, points, 2], x then y as fractions of the level.
    weights: float32 [Q, heads, points].
    """
    height, width = size
    _, heads, depth = values.shape
    queries, _, points, _ = places.shape
    # a border of zeros; what lies beyond it is moved onto it
    padded = torch.nn.functional.pad(
        values.reshape(height, width, heads * depth), (0, 0, 1, 1, 1, 1)
    )
    row = width + 2  # cells of a padded row
    cells = padded.reshape((height + 2) * row * heads, depth)
    left, right_share = _below(places[..., 0], width)
    top, bottom_share = _below(places[..., 1], height)
    first = (top * row + left) * heads + torch.arange(heads)[None, :, None]
    corners = torch.stack(
        [first, first + heads, first + row * heads, first + (row + 1) * heads], -1
    )
    shares = torch.stack(
        [
            (1 - right_share) * (1 - bottom_share),
            right_share * (1 - bottom_share),
            (1 - right_share) * bottom_share,
            right_share * bottom_share,
        ],
        -1,
    )
    found = cells.index_select(0, corners.flatten()).reshape(queries, heads, 4 * points, depth)
    summed = (shares * weights[..., None]).reshape(queries, heads, 1, 4 * points) @ found
    return summed.reshape(queries, heads, depth)


def _below(fractions: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """The padded cell at or before each place, int64, and the share of the one after it."""
    # tensors straight from the symbolic size: `float(cells)` would freeze it
    last = torch.tensor(cells, dtype=fractions.dtype)
    position = torch.minimum((fractions * last + 0.5).clamp(min=0), last + 1)
    before = torch.minimum(position.floor(), last)
    return before.to(torch.int64), position - before


class Sampler(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """In the place of transformers' `MultiScaleDeformableAttention`, with its signature."""

    def forward(
        self,
        value: Tensor,
        value_spatial_shapes: Tensor,
        value_spatial_shapes_list: list[tuple[int, int]],
        level_start_index: Tensor,
        sampling_locations: Tensor,
        attention_weights: Tensor,
        im2col_step: int,
    ) -> Tensor:
        """value: float32 [1, S, heads, depth], the levels one after another;
        sampling_locations: float32 [1, Q, heads, levels, points, 2], fractions;
        attention_weights: float32 [1, Q, heads, levels, points].
        Returns float32 [1, Q, heads * depth].
        """
        sizes = value_spatial_shapes_list
        total: Any = 0
        for level, values in enumerate(value[0].split([h * w for h, w in sizes])):
            total = total + sampled(
                values,
                sizes[level],
                sampling_locations[0, :, :, level],
                attention_weights[0, :, :, level],
            )
        return total.flatten(1)[None]


def without_grid_sample(model: torch.nn.Module) -> torch.nn.Module:
    """`model`, its deformable attention sampling by `sampled`."""
    for module in model.modules():
        for name, child in module.named_children():
            if type(child).__name__ == "MultiScaleDeformableAttention":
                setattr(module, name, Sampler())
    return model
