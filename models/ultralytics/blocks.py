"""The building blocks of YOLOv5, v8, v10 and 11 in torch, for export only.

Attributes are named as in the published checkpoints, so that a state dict loads strictly; all else
is written from the papers (YOLOv10: arXiv 2405.14458) and the public descriptions of the
architectures. Channels are (in, out); every block keeps height and width unless it has a stride.
"""

# mypy: allow-subclassing-any, allow-untyped-calls, no-warn-return-any
# (serving and its checks run in an environment without torch)

from collections.abc import Callable

import torch  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor, nn  # type: ignore[import-not-found,unused-ignore]

BATCH_NORM_EPS = 1e-3  # Ultralytics sets it on every BatchNorm; torch's own default is 1e-5


class Conv(nn.Module):
    """Convolution, batch normalisation, SiLU (or nothing)."""

    def __init__(
        self,
        inner: int,
        outer: int,
        kernel: int = 1,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        act: bool = True,
    ) -> None:
        super().__init__()
        pad = kernel // 2 if padding is None else padding
        self.conv = nn.Conv2d(inner, outer, kernel, stride, pad, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outer, eps=BATCH_NORM_EPS)
        self.act = nn.SiLU() if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))

    def fuse(self) -> None:
        """Put the normalisation into the convolution's weights, computed in double precision."""
        conv, norm = self.conv, self.bn
        if isinstance(norm, nn.Identity):
            return
        gain = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        weight = conv.weight.double() * gain[:, None, None, None]
        bias = norm.bias.double() - norm.running_mean.double() * gain
        conv.weight = nn.Parameter(weight.float(), requires_grad=False)
        conv.bias = nn.Parameter(bias.float(), requires_grad=False)
        self.bn = nn.Identity()


class Residual(nn.Module):
    """Adds its input where `add` says so; published modules record `add`, which is checked."""

    add: bool

    def _added(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y if self.add else y


class Bottleneck(Residual):
    """Two convolutions around a narrow middle."""

    def __init__(
        self,
        inner: int,
        outer: int,
        shortcut: bool = True,
        kernels: tuple[int, int] = (3, 3),
        expansion: float = 0.5,
    ) -> None:
        super().__init__()
        middle = int(outer * expansion)
        self.cv1 = Conv(inner, middle, kernels[0])
        self.cv2 = Conv(middle, outer, kernels[1])
        self.add = shortcut and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        return self._added(x, self.cv2(self.cv1(x)))


class C3(nn.Module):
    """YOLOv5's cross-stage block: a chain of bottlenecks beside a plain convolution."""

    KERNELS = (1, 3)

    def __init__(self, inner: int, outer: int, repeats: int = 1, shortcut: bool = True) -> None:
        super().__init__()
        middle = outer // 2
        self.cv1 = Conv(inner, middle)
        self.cv2 = Conv(inner, middle)
        self.cv3 = Conv(2 * middle, outer)
        self.m = nn.Sequential(
            *(Bottleneck(middle, middle, shortcut, self.KERNELS, 1.0) for _ in range(repeats))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class C3k(C3):
    """YOLO11's C3, with two 3x3 kernels in each bottleneck."""

    KERNELS = (3, 3)


class Split(nn.Module):
    """What C2f, C3k2 and C2fCIB share: half of the channels go through a chain of blocks, and the
    output of every link is kept."""

    def __init__(
        self,
        inner: int,
        outer: int,
        repeats: int,
        expansion: float,
        link: Callable[[int], nn.Module],
    ) -> None:
        super().__init__()
        middle = int(outer * expansion)
        self.cv1 = Conv(inner, 2 * middle)
        self.cv2 = Conv((2 + repeats) * middle, outer)
        self.m = nn.ModuleList(link(middle) for _ in range(repeats))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.cv1(x).chunk(2, 1))
        for link in self.m:
            parts.append(link(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class C2f(Split):
    """YOLOv8: links are bottlenecks as wide as the chain; its neck has no residuals."""

    def __init__(self, inner: int, outer: int, repeats: int = 1, shortcut: bool = False) -> None:
        super().__init__(
            inner,
            outer,
            repeats,
            0.5,
            lambda width: Bottleneck(width, width, shortcut, (3, 3), 1.0),
        )


class C3k2(Split):
    """YOLO11: links are narrow bottlenecks or C3k, with residuals everywhere."""

    def __init__(
        self, inner: int, outer: int, repeats: int = 1, c3k: bool = False, expansion: float = 0.5
    ) -> None:
        super().__init__(
            inner,
            outer,
            repeats,
            expansion,
            lambda width: C3k(width, width, 2) if c3k else Bottleneck(width, width),
        )


class RepVGGDW(nn.Module):
    """YOLOv10: a 7x7 and a 3x3 depth-wise convolution, added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = Conv(width, width, 7, groups=width, act=False)
        self.conv1 = Conv(width, width, 3, groups=width, act=False)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.conv(x) + self.conv1(x))


class CIB(Residual):
    """YOLOv10's compact inverted block: depth-wise and point-wise convolutions in turn."""

    def __init__(self, width: int, shortcut: bool, large_kernel: bool) -> None:
        super().__init__()
        wide = 2 * width
        self.cv1 = nn.Sequential(
            Conv(width, width, 3, groups=width),
            Conv(width, wide),
            RepVGGDW(wide) if large_kernel else Conv(wide, wide, 3, groups=wide),
            Conv(wide, width),
            Conv(width, width, 3, groups=width),
        )
        self.add = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self._added(x, self.cv1(x))


class C2fCIB(Split):
    """YOLOv10: C2f with CIB links."""

    def __init__(
        self,
        inner: int,
        outer: int,
        repeats: int = 1,
        shortcut: bool = False,
        large_kernel: bool = False,
    ) -> None:
        super().__init__(
            inner, outer, repeats, 0.5, lambda width: CIB(width, shortcut, large_kernel)
        )


class SCDown(nn.Module):
    """YOLOv10: channels point-wise first, then a depth-wise stride."""

    def __init__(self, inner: int, outer: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.cv1 = Conv(inner, outer)
        self.cv2 = Conv(outer, outer, kernel, stride, groups=outer, act=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.cv2(self.cv1(x))


class SPPF(nn.Module):
    """Spatial pyramid pooling: three poolings in a row, all four stages kept."""

    def __init__(self, inner: int, outer: int, kernel: int = 5) -> None:
        super().__init__()
        middle = inner // 2
        self.cv1 = Conv(inner, middle)
        self.cv2 = Conv(4 * middle, outer)
        self.m = nn.MaxPool2d(kernel, 1, kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        stages = [self.cv1(x)]
        for _ in range(3):
            stages.append(self.m(stages[-1]))
        return self.cv2(torch.cat(stages, 1))


class Attention(nn.Module):
    """Self-attention over all cells with a depth-wise convolution as position encoding; keys are
    half as wide as values (YOLOv10, section 3.2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._heads = max(width // 64, 1)
        self._value = width // self._heads
        self._key = self._value // 2
        self.qkv = Conv(width, width + 2 * self._key * self._heads, act=False)
        self.proj = Conv(width, width, act=False)
        self.pe = Conv(width, width, 3, groups=width, act=False)

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        mixed = self.qkv(x).reshape(shape[0], self._heads, -1, shape[2] * shape[3])
        query, key, value = mixed.split((self._key, self._key, self._value), 2)
        weights = (query.transpose(2, 3) @ key * self._key**-0.5).softmax(3)
        seen = (value @ weights.transpose(2, 3)).reshape(shape)
        return self.proj(seen + self.pe(value.reshape(shape)))


class PSABlock(Residual):
    """Attention, then a feed-forward pair, each with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn = Attention(width)
        self.ffn = nn.Sequential(Conv(width, 2 * width), Conv(2 * width, width, act=False))
        self.add = True

    def forward(self, x: Tensor) -> Tensor:
        x = self._added(x, self.attn(x))
        return self._added(x, self.ffn(x))


class PartialAttention(nn.Module):
    """What PSA and C2PSA share: attention on half of the channels."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.cv1 = Conv(inner, 2 * (inner // 2))
        self.cv2 = Conv(2 * (inner // 2), outer)

    def attend(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        passed, attended = self.cv1(x).chunk(2, 1)
        return self.cv2(torch.cat((passed, self.attend(attended)), 1))


class PSA(PartialAttention):
    """YOLOv10: one attention, with the parts of PSABlock directly in it."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__(inner, outer)
        block = PSABlock(inner // 2)
        self.attn, self.ffn = block.attn, block.ffn

    def attend(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        return x + self.ffn(x)


class C2PSA(PartialAttention):
    """YOLO11: a chain of attention blocks."""

    def __init__(self, inner: int, outer: int, repeats: int = 1) -> None:
        super().__init__(inner, outer)
        self.m = nn.Sequential(*(PSABlock(inner // 2) for _ in range(repeats)))

    def attend(self, x: Tensor) -> Tensor:
        return self.m(x)


class Upsample(nn.Module):
    """Repeats each cell `factor` times in both directions."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self._factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, scale_factor=float(self._factor), mode="nearest")


class Concat(nn.Module):
    """Joins feature maps by channel."""

    def forward(self, *maps: Tensor) -> Tensor:
        return torch.cat(maps, 1)


BLOCKS: dict[str, type[nn.Module]] = {
    each.__name__: each
    for each in (Conv, C3, C2f, C3k2, SPPF, C2PSA, PSA, SCDown, C2fCIB, Upsample, Concat)
}
