"""`Detections`: what every detector in Detserve returns for one image.

One currency for all families, so that serving, gates and reports never ask which family made it.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Detections:
    """N boxes on one image, sorted by falling score (ties keep the engine's order).

    boxes: float32 [N, 4], `(x_min, y_min, x_max, y_max)` in pixels of the upright source image,
        origin at the top-left corner of the top-left pixel.
    scores: float32 [N], 0..1.
    class_ids: int32 [N], index into the checkpoint's labels.
    height, width: size of the upright source image in pixels.

    Raises:
        ValueError: a shape or dtype is off, or the scores do not fall.
    """

    boxes: np.ndarray
    scores: np.ndarray
    class_ids: np.ndarray
    height: int
    width: int

    def __post_init__(self) -> None:
        count = len(self.scores)
        expected = {
            "boxes": (np.float32, (count, 4)),
            "scores": (np.float32, (count,)),
            "class_ids": (np.int32, (count,)),
        }
        for name, (dtype, shape) in expected.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.shape != shape:
                raise ValueError(
                    f"Detections.{name} must be {np.dtype(dtype)} {list(shape)}, "
                    f"not {array.dtype} {list(array.shape)}"
                )
        if count > 1 and bool(np.any(np.diff(self.scores) > 0)):
            raise ValueError("Detections.scores must be sorted by falling score")
        if self.height < 1 or self.width < 1:
            raise ValueError("Detections needs an image of at least 1x1 pixels")

    def __len__(self) -> int:
        return len(self.scores)

    def only(self, chosen: np.ndarray) -> "Detections":
        """The detections at `chosen`, bool [N]."""
        return Detections(
            self.boxes[chosen],
            self.scores[chosen],
            self.class_ids[chosen],
            self.height,
            self.width,
        )

    def boxes_norm(self) -> np.ndarray:
        """Boxes as fractions of the image size: float32 [N, 4], the wire's coordinates."""
        size = np.array([self.width, self.height, self.width, self.height], np.float32)
        return self.boxes / size
