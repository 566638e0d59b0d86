"""Prints, as JSON, how far `sampled` is from torch's `grid_sample`, by where the places lie.

    python -m tests.models.compare_sampling

In double, so that only a difference in what is computed shows. It needs torch, and so a process of
its own.
"""

import json

import torch

from models.deformable_sampling import sampled

HEADS, DEPTH, QUERIES, POINTS = 3, 5, 40, 4


def published(values, size, places, weights):
    """By `grid_sample`, as transformers' `MultiScaleDeformableAttention` calls it."""
    plane = values.permute(1, 2, 0).reshape(HEADS, DEPTH, *size)
    found = torch.nn.functional.grid_sample(
        plane,
        (2 * places - 1).transpose(0, 1),
        mode="bilinear",
        padding_mode="zeros",
        align_corners=False,
    )
    return (found * weights.transpose(0, 1)[:, None]).sum(-1).permute(2, 0, 1)


def main():
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    gaps = {}
    for size in ((1, 1), (1, 7), (6, 2), (13, 21)):
        height, width = size
        values = random(height * width, HEADS, DEPTH) - 0.5
        weights = random(QUERIES, HEADS, POINTS)
        inside = random(QUERIES, HEADS, POINTS, 2)
        cells = torch.tensor([width, height])
        kinds = {
            "inside": inside,
            "on borders": inside.round(),
            "on centres": ((inside * cells).floor() + 0.5) / cells,
            "half a cell outside": inside.round() + (inside.round() - 0.5) / cells,
            "outside": inside * 6 - 3,
            "far outside": (inside - 0.5) * 1e6,
        }
        for kind, places in kinds.items():
            gap = sampled(values, size, places, weights) - published(values, size, places, weights)
            gaps[kind] = max(gaps.get(kind, 0.0), float(gap.abs().max()))
    print(json.dumps(gaps))


if __name__ == "__main__":
    main()
