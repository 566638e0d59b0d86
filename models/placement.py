"""`Placement`: where an image lies on the network's input, whatever rule put it there."""

from typing import Protocol

import numpy as np

from models.errors import BundleError


def fixed(canvas: tuple[int, int] | None) -> tuple[int, int]:
    """The canvas of a family that needs one.

    Raises:
        BundleError: the checkpoint gives none.
    """
    if canvas is None:
        raise BundleError("this family runs on a fixed canvas: the checkpoint must give `canvas`")
    return canvas


class Placement(Protocol):
    """Made by a family's `place` for one image size; sizes in pixels."""

    @property
    def source_height(self) -> int: ...

    @property
    def source_width(self) -> int: ...

    def paint(self, image: np.ndarray) -> np.ndarray:
        """image: uint8 [source_height, source_width, 3]. Returns the network's input, uint8
        [H, W, 3]."""
        ...

    def to_source(self, boxes: np.ndarray) -> np.ndarray:
        """The engine's boxes, float32 [N, 4] xyxy in whatever unit the family's graph has, to
        float32 [N, 4] xyxy in source pixels, cut at the image's edges."""
        ...
