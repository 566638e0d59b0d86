"""`Resized`: an image resized to the network's input without padding, and boxes mapped back.

Written once for the families that resize without a border (the DETR line, as Hugging Face's image
processors do it), because a pixel more or less in the resized side moves every box.
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from models.errors import BundleError
from models.graph import SizeRange

# DETR's rule in pixels (DETR paper, section 4; Hugging Face `DetrImageProcessor`)
SHORTEST, LONGEST = 800, 1333

# The published rule leaves an image of 600x1334 as it is, and one of 1x2665 too. Above this it is
# resized here, which only images of one or two pixels by more notice: an engine reserves memory for
# its largest size in both directions.
KEPT = 1600

# all that `Resized.shortest_edge` makes of images, in either orientation; 640x480 is made 1066x800
SHORTEST_EDGE_SIZES = SizeRange(smallest=(1, 1), usual=(800, 1066), largest=(KEPT, KEPT))


@dataclass(frozen=True)
class Resized:
    """One image's size before and after. All sizes in pixels."""

    source_height: int
    source_width: int
    height: int
    width: int

    @classmethod
    def stretched(cls, source: tuple[int, int], canvas: tuple[int, int]) -> "Resized":
        """To exactly the canvas, whatever the aspect.

        source, canvas: (height, width).
        """
        return cls(*source, *canvas)

    @classmethod
    def shortest_edge(
        cls, source: tuple[int, int], shortest: int = SHORTEST, longest: int = LONGEST
    ) -> "Resized":
        """DETR's rule (DETR paper, section 4; Hugging Face `DetrImageProcessor`): the shorter side
        to `shortest`, or to less where the longer side would pass `longest`; aspect kept.

        The shorter side is rounded half to even, the longer one is cut to whole pixels and follows
        the shorter side as it was before rounding. An image whose shorter side is right already is
        left alone, even where rounding made it right (600x1334 stays, one pixel above `longest`),
        but for a longer side above `KEPT`. A side that would be 0 becomes 1 (the published rule
        fails there).

        source: (height, width).
        """
        short, long = sorted(source)
        exact = float(shortest)
        if float(long) / float(short) * shortest > longest:
            exact = longest * float(short) / float(long)
        side = round(exact)
        if side == short and long <= max(longest, KEPT):
            return cls(*source, *source)
        # in this order: another one differs in the last bit, and by the cut in a whole pixel
        other = max(1, int(exact * long / short))
        side = max(1, side)
        height, width = source
        return cls(height, width, *((other, side) if width < height else (side, other)))

    def paint(self, image: np.ndarray) -> np.ndarray:
        """The network's input for `image`.

        image: uint8 [source_height, source_width, 3]. Returns uint8 [height, width, 3], resized by
        Pillow's antialiased bilinear filter on whole grey levels: to the bit what Hugging Face's
        Pillow image processors feed these models before they normalise.
        """
        if image.shape[:2] == (self.height, self.width):
            return image
        size = (self.width, self.height)
        return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))

    def to_source(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes from fractions of the image to source pixels, cut at the image's edges.

        boxes: float32 [N, 4] xyxy, 0..1. Returns float32 [N, 4] xyxy in source pixels.
        """
        limits = np.array([self.source_width, self.source_height] * 2, np.float32)
        return (boxes * limits).clip(np.float32(0), limits)


def without_canvas(canvas: tuple[int, int] | None) -> None:
    """For families whose input follows the image's size: on a padded canvas and without the pixel
    mask, DETR's boxes would be fractions of the padded image, each of them misplaced.

    Raises:
        BundleError: the checkpoint gives a canvas.
    """
    if canvas is not None:
        raise BundleError("this family's input follows the image's size: leave `canvas` out")
