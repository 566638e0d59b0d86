"""Letterboxing: fit an image on a fixed canvas without changing its aspect, and map boxes back.

Written once for every family that uses it, because half-pixel pads and rounding differences here
are where served boxes and published boxes drift apart.
"""

from dataclasses import dataclass

import cv2
import numpy as np

PAD = 114  # the grey that Ultralytics and Megvii train with


@dataclass(frozen=True)
class Letterbox:
    """Where one image lies on its canvas. All sizes in pixels.

    `scale_x` and `scale_y` are canvas pixels a source pixel; `left` and `top` are whole pixels.
    """

    source_height: int
    source_width: int
    canvas_height: int
    canvas_width: int
    resized_height: int
    resized_width: int
    left: int
    top: int
    scale_x: float
    scale_y: float

    @classmethod
    def centred(cls, source: tuple[int, int], canvas: tuple[int, int]) -> "Letterbox":
        """Ultralytics' rule (`LetterBox`, 8.3): enlarges too, sides rounded half to even, the pad
        split evenly and an odd pixel given to the right and bottom. Each axis has the scale it was
        resized by (`scale_boxes`, 8.4): one scale for both is off by up to half a canvas pixel,
        which is more than a pixel of a large image.

        source, canvas: (height, width).
        """
        (height, width), (canvas_height, canvas_width) = source, canvas
        scale = min(canvas_height / height, canvas_width / width)
        resized_height = max(1, round(height * scale))
        resized_width = max(1, round(width * scale))
        return cls(
            *source,
            *canvas,
            resized_height,
            resized_width,
            left=(canvas_width - resized_width) // 2,
            top=(canvas_height - resized_height) // 2,
            scale_x=resized_width / width,
            scale_y=resized_height / height,
        )

    @classmethod
    def top_left(cls, source: tuple[int, int], canvas: tuple[int, int]) -> "Letterbox":
        """Megvii's rule (`preproc` of YOLOX): sides cut to whole pixels, all pad right and below,
        and boxes mapped back by the scale before the cut, for both axes.

        source, canvas: (height, width).
        """
        (height, width), (canvas_height, canvas_width) = source, canvas
        scale = min(canvas_height / height, canvas_width / width)
        return cls(
            *source,
            *canvas,
            resized_height=max(1, int(height * scale)),
            resized_width=max(1, int(width * scale)),
            left=0,
            top=0,
            scale_x=scale,
            scale_y=scale,
        )

    def paint(self, image: np.ndarray) -> np.ndarray:
        """The canvas for `image`.

        image: uint8 [source_height, source_width, 3]. Returns uint8
        [canvas_height, canvas_width, 3], resized bilinearly as OpenCV does (the published
        preprocessing of these families; Pillow's bilinear filter gives other pixels).
        """
        canvas = np.full((self.canvas_height, self.canvas_width, 3), PAD, np.uint8)
        inside = canvas[
            self.top : self.top + self.resized_height, self.left : self.left + self.resized_width
        ]
        if image.shape[:2] == inside.shape[:2]:
            inside[:] = image
        else:
            size = (self.resized_width, self.resized_height)
            inside[:] = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
        return canvas

    def to_source(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes from canvas to source pixels, cut at the image's edges.

        boxes: float32 [N, 4] xyxy in canvas pixels. Returns float32 [N, 4] xyxy in source pixels.
        """
        offset = np.array([self.left, self.top] * 2, np.float32)
        limits = np.array([self.source_width, self.source_height] * 2, np.float32)
        scales = np.array([self.scale_x, self.scale_y] * 2, np.float32)
        scaled: np.ndarray = (boxes - offset) / scales
        return scaled.clip(np.float32(0), limits)
