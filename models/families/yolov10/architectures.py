"""The architectures of YOLOv10 n, s and x, which their Hugging Face directories do not carry.

From the paper (arXiv 2405.14458, section 3.2) and the published models: the deeper a stage and the
larger the model, the more of its C2f blocks are compact inverted blocks (C2fCIB), with 7x7 kernels
in the small models. Rows are as in plan.py.
"""

from dataclasses import dataclass
from typing import Any

from models.errors import BundleError

Block = tuple[str, tuple[bool, ...]]  # its name and its arguments after the channels

PLAIN_BACKBONE: Block = ("C2f", (True,))
PLAIN_NECK: Block = ("C2f", ())
COMPACT: Block = ("C2fCIB", (True,))
COMPACT_LARGE: Block = ("C2fCIB", (True, True))


@dataclass(frozen=True)
class Variant:
    """factors: depth, width, greatest number of channels; blocks: of the five stages that differ,
    by the index of their layer."""

    factors: tuple[float, float, int]
    at_6: Block
    at_8: Block
    at_13: Block
    at_19: Block
    at_22: Block


VARIANTS = {  # by the channels of the first convolution
    16: Variant(
        (0.33, 0.25, 1024), PLAIN_BACKBONE, PLAIN_BACKBONE, PLAIN_NECK, PLAIN_NECK, COMPACT_LARGE
    ),  # n
    32: Variant(
        (0.33, 0.5, 1024), PLAIN_BACKBONE, COMPACT_LARGE, PLAIN_NECK, PLAIN_NECK, COMPACT_LARGE
    ),  # s
    80: Variant((1.0, 1.25, 512), COMPACT, COMPACT, COMPACT, COMPACT, COMPACT),  # x
}


def architecture_of(*, width: int, classes: int) -> dict[str, Any]:
    """The architecture dict of the variant whose first convolution has `width` channels.

    Raises:
        BundleError: it is none of n, s and x.
    """
    variant = VARIANTS.get(width)
    if variant is None:
        raise BundleError(
            f"the first convolution has {width} channels: YOLOv10 n, s and x have "
            f"{', '.join(map(str, VARIANTS))}, others must have `yaml` in config.json"
        )

    def row(repeats: int, channels: int, block: Block) -> list[Any]:
        name, rest = block
        return [-1, repeats, name, [channels, *rest]]

    def down(kind: str, channels: int) -> list[Any]:
        return [-1, 1, kind, [channels, 3, 2]]

    def joined(index: int) -> list[Any]:
        return [[-1, index], 1, "Concat", [1]]

    up = [-1, 1, "nn.Upsample", [None, 2, "nearest"]]
    return {
        "nc": classes,
        "scales": {"published": list(variant.factors)},
        "scale": "published",
        "backbone": [
            down("Conv", 64),
            down("Conv", 128),
            row(3, 128, PLAIN_BACKBONE),
            down("Conv", 256),
            row(6, 256, PLAIN_BACKBONE),
            down("SCDown", 512),
            row(6, 512, variant.at_6),
            down("SCDown", 1024),
            row(3, 1024, variant.at_8),
            [-1, 1, "SPPF", [1024, 5]],
            [-1, 1, "PSA", [1024]],
        ],
        "head": [
            up,
            joined(6),
            row(3, 512, variant.at_13),
            up,
            joined(4),
            row(3, 256, PLAIN_NECK),
            down("Conv", 256),
            joined(13),
            row(3, 512, variant.at_19),
            down("SCDown", 512),
            joined(10),
            row(3, 1024, variant.at_22),
            [[16, 19, 22], 1, "v10Detect", ["nc"]],
        ],
    }
