"""The three detection heads in torch, for export only: their convolutions and their decoding.

Decoding is a module of its own without weights (`Decode…`), so that its nodes are together in the
exported graph: they must stay in FP32, because half precision is 0.5 pixel coarse above 512.

Each head takes one feature map an output, [1, C, H / stride, W / stride], and returns the published
export form: YOLOv5 [1, A, 5 + C], the others [1, 4 + C, A].
"""

# mypy: allow-subclassing-any, allow-untyped-calls, no-warn-return-any

from collections.abc import Sequence

import torch  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor, nn  # type: ignore[import-not-found,unused-ignore]

from models.ultralytics.blocks import Conv
from models.ultralytics.plan import Plan

BINS = 16  # of the distribution over a side's distance (`reg_max`)


class Distances(nn.Module):
    """YOLOv8 and 11: per cell, distances to the four sides as distributions, and class logits."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        width = max(16, plan.channels[0] // 4, 4 * BINS)
        self.cv2 = nn.ModuleList(_plain(each, width, 4 * BINS) for each in plan.channels)
        self.cv3 = nn.ModuleList(_class_branches(plan))
        self.dfl = DFL()
        self.decode = DecodeDistances(plan.strides, corners=False)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        return self.decode(self.dfl, *_branches(maps, self.cv2, self.cv3))


class OneToOne(nn.Module):
    """YOLOv10: the same with boxes as corners; only the one-to-one branches, which need no NMS."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        width = max(16, plan.channels[0] // 4, 4 * BINS)
        self.one2one_cv2 = nn.ModuleList(_plain(each, width, 4 * BINS) for each in plan.channels)
        self.one2one_cv3 = nn.ModuleList(_class_branches(plan))
        self.dfl = DFL()
        self.decode = DecodeDistances(plan.strides, corners=True)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        return self.decode(self.dfl, *_branches(maps, self.one2one_cv2, self.one2one_cv3))


class Anchors(nn.Module):
    """YOLOv5 (6.0 and later): per cell and anchor, box, objectness and class logits.

    `anchors` is in the checkpoint: width and height of each anchor in cells, [outputs, anchors, 2].
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        count = len(plan.anchors[0]) // 2
        self.register_buffer("anchors", torch.zeros(len(plan.anchors), count, 2))
        each = count * (5 + plan.classes)
        self.m = nn.ModuleList(nn.Conv2d(channels, each, 1) for channels in plan.channels)
        self.decode = DecodeAnchors(plan.strides)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        raw = [branch(each) for branch, each in zip(self.m, maps, strict=True)]
        return self.decode(raw, self.anchors)


HEADS: dict[str, type[nn.Module]] = {
    "distances": Distances,
    "one-to-one": OneToOne,
    "anchors": Anchors,
}


class DFL(nn.Module):
    """The expectation of a distribution over distances; its weights, 0 to 15, are published as a
    convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(BINS, 1, 1, bias=False)

    def forward(self, logits: Tensor) -> Tensor:
        """[1, 4 · BINS, A] to [1, 4, A], in cells."""
        anchors = logits.shape[2]
        parts = logits.reshape(1, 4, BINS, anchors).transpose(1, 2).softmax(1)
        return self.conv(parts).reshape(1, 4, anchors)


class DecodeDistances(nn.Module):
    """Distances left, top, right, bottom of a cell's middle to boxes in canvas pixels."""

    def __init__(self, strides: Sequence[int], *, corners: bool) -> None:
        super().__init__()
        self._strides = tuple(strides)
        self._corners = corners

    def forward(
        self, dfl: nn.Module, sides: Tensor, logits: Tensor, sizes: Sequence[tuple[int, int]]
    ) -> Tensor:
        near, far = dfl(sides).chunk(2, 1)
        middles, strides = [], []
        for (height, width), stride in zip(sizes, self._strides, strict=True):
            middles.append(_cells(height, width) + 0.5)
            strides.append(torch.full((1, height * width), float(stride)))
        middle, stride_px = torch.cat(middles, 1), torch.cat(strides, 1)
        first, last = middle - near, middle + far
        if self._corners:
            box = torch.cat((first, last), 1)
        else:
            box = torch.cat(((first + last) / 2, last - first), 1)
        return torch.cat((box * stride_px, logits.sigmoid()), 1)


class DecodeAnchors(nn.Module):
    """YOLOv5 6.0: centre = (2s - 0.5 + cell) · stride, size = (2s)² · anchor, with s
    the sigmoid; output by output, anchor by anchor, row by row."""

    def __init__(self, strides: Sequence[int]) -> None:
        super().__init__()
        self._strides = tuple(strides)

    def forward(self, raw: Sequence[Tensor], anchors: Tensor) -> Tensor:
        rows = []
        for each, sizes, stride in zip(raw, anchors, self._strides, strict=True):
            count, (height, width) = len(sizes), each.shape[2:]
            values = each.reshape(1, count, -1, height * width).transpose(2, 3).sigmoid()
            cell = _cells(height, width).T
            centre = (values[..., :2] * 2 - 0.5 + cell) * stride
            size = (values[..., 2:4] * 2) ** 2 * (sizes * stride)[:, None]
            row = torch.cat((centre, size, values[..., 4:]), 3)
            rows.append(row.reshape(1, count * height * width, -1))
        return torch.cat(rows, 1)


def _cells(height: int, width: int) -> Tensor:
    """Column and row of each cell, row by row: float32 [2, height · width]."""
    row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack((column.reshape(-1), row.reshape(-1))).float()


def _branches(
    maps: Sequence[Tensor], sides: Sequence[nn.Module], classes: Sequence[nn.Module]
) -> tuple[Tensor, Tensor, list[tuple[int, int]]]:
    """Both branches on all maps, joined: [1, 4 · BINS, A], [1, C, A]; and the maps' sizes."""
    joined = [
        torch.cat([branch(x).flatten(2) for branch, x in zip(group, maps, strict=True)], 2)
        for group in (sides, classes)
    ]
    return joined[0], joined[1], [(x.shape[2], x.shape[3]) for x in maps]


def _plain(inner: int, width: int, outer: int) -> nn.Sequential:
    return nn.Sequential(Conv(inner, width, 3), Conv(width, width, 3), nn.Conv2d(width, outer, 1))


def _depthwise(inner: int, width: int, outer: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Sequential(Conv(inner, inner, 3, groups=inner), Conv(inner, width)),
        nn.Sequential(Conv(width, width, 3, groups=width), Conv(width, width)),
        nn.Conv2d(width, outer, 1),
    )


def _class_branches(plan: Plan) -> list[nn.Sequential]:
    width = max(plan.channels[0], min(plan.classes, 100))
    make = _depthwise if plan.depthwise else _plain
    return [make(each, width, plan.classes) for each in plan.channels]
