"""Native, reference and ground truth on one picture, told apart by stroke as well as by colour.

Native boxes are solid, the reference's dashed, objects of the ground truth have corners only, so
that nothing depends on seeing colours; those are from the palette of Okabe and Ito (2008), which
people with a colour vision deficiency tell apart. Equal boxes show both strokes: dashes on a line.
"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from qualification.html.choice import Chosen
from qualification.pictures import shrunk

Colour = tuple[int, int, int]
Rectangle = tuple[float, float, float, float]

NATIVE: Colour = (0, 114, 178)
REFERENCE: Colour = (213, 94, 0)
TRUTH: Colour = (0, 122, 90)  # the palette's green, darker: white text must stand out on it
HALO: Colour = (255, 255, 255)


def draw(image: Path, chosen: Chosen, longest_side: int) -> Image.Image:
    """The image with every box, and labels where they do not cover each other: of native boxes,
    `missed` objects, and `reference` boxes without a native one on them."""
    picture, scale = shrunk(image, longest_side)
    pen = _Pen(picture, scale)
    objects, names = chosen.objects or (np.zeros((0, 4), np.float32), [])
    for box in chosen.native.detections.boxes:
        pen.solid(box)
    if chosen.reference is not None:
        for box in chosen.reference.detections.boxes:
            pen.dashed(box)
    for box in objects:  # last, for at the picture's edge they lie on the lines
        pen.corners(box)
    _tag(pen, chosen, objects, names)
    return picture


def _tag(pen: "_Pen", chosen: Chosen, objects: np.ndarray, names: list[str]) -> None:
    """What is wrong is labelled before what is right, for space is short."""
    native, wanted = chosen.native, []
    if chosen.against is not None:
        wanted += [
            (objects[index], f"missed: {names[index]}", TRUTH)
            for index in np.flatnonzero(chosen.against.missed)
        ]
    if chosen.reference is not None and chosen.problem is not None:
        ours = native.detections.boxes.astype(float)
        for box, label, score in zip(
            chosen.reference.detections.boxes,
            chosen.reference.labels,
            chosen.reference.detections.scores,
            strict=True,
        ):
            if not len(ours) or np.abs(ours - box).max(axis=1).min() >= 1:
                wanted.append((box, f"reference: {label} {score:.2f}", REFERENCE))
    extra = chosen.against.extra if chosen.against else np.zeros(len(native.labels), bool)
    own = list(zip(native.detections.boxes, native.detections.scores, native.labels, strict=True))
    for index in [*np.flatnonzero(extra), *np.flatnonzero(~extra)]:
        box, score, label = own[index]
        wanted.append((box, f"{'extra: ' if extra[index] else ''}{label} {score:.2f}", NATIVE))
    for box, text, colour in wanted:
        pen.tag(box, text, colour)


class _Pen:
    """Draws on a picture that is `scale` times its source; boxes are in source pixels."""

    def __init__(self, picture: Image.Image, scale: float) -> None:
        self._draw = ImageDraw.Draw(picture)
        self._size = picture.size
        self._scale = scale
        self._line = max(3, round(max(picture.size) / 225))
        # a compromise: read on a phone that shows 360 pixels across, yet not all over the picture
        self._font = ImageFont.load_default(size=max(13, round(picture.width / 42)))
        self._tags: list[Rectangle] = []

    def solid(self, box: np.ndarray) -> None:
        around = self._around(box, 0)
        self._draw.rectangle(self._around(box, 1), outline=HALO, width=self._line + 2)
        self._draw.rectangle(around, outline=NATIVE, width=self._line)

    def dashed(self, box: np.ndarray) -> None:
        x_min, y_min, x_max, y_max = self._around(box, 0)
        width = max(2, self._line - 1)
        dash = 4 * self._line
        inner = width - 1
        for start in np.arange(x_min, x_max, 2 * dash):
            end = min(start + dash, x_max)
            for y in (y_min, y_max - inner):
                self._draw.rectangle(_proper(start, y, end, y + inner), fill=REFERENCE)
        for start in np.arange(y_min, y_max, 2 * dash):
            end = min(start + dash, y_max)
            for x in (x_min, x_max - inner):
                self._draw.rectangle(_proper(x, start, x + inner, end), fill=REFERENCE)

    def corners(self, box: np.ndarray) -> None:
        x_min, y_min, x_max, y_max = self._around(box, self._line + 2)
        reach = 7 * self._line
        across, down = min(reach, (x_max - x_min) / 3), min(reach, (y_max - y_min) / 3)
        for x, inwards in ((x_min, across), (x_max, -across)):
            for y, along in ((y_min, down), (y_max, -down)):
                line = [(x + inwards, y), (x, y), (x, y + along)]
                self._draw.line(line, fill=HALO, width=self._line + 3)
                self._draw.line(line, fill=TRUTH, width=self._line + 1)

    def tag(self, box: np.ndarray, text: str, colour: Colour) -> None:
        """A label on, in or under the box; none where each place is taken."""
        left, top, right, bottom = self._draw.textbbox((0, 0), text, font=self._font)
        width, height = right - left + 8, bottom - top + 6
        x_min, y_min, _, y_max = self._around(box, 0)
        x = min(max(0, x_min), max(0, self._size[0] - width))
        for y in (y_min - height, y_min, y_max, y_max - height):
            place = (x, y, x + width, y + height)
            inside = y >= 0 and place[3] <= self._size[1]
            if inside and not any(_overlap(place, other) for other in self._tags):
                self._draw.rectangle(place, fill=colour)
                self._draw.text((x + 4 - left, y + 3 - top), text, fill=HALO, font=self._font)
                self._tags.append(place)
                return

    def _around(self, box: np.ndarray, margin: float) -> Rectangle:
        """The box on the picture, wider by `margin`, and inside it: a side that lies outside is
        drawn at the edge."""
        x_min, y_min, x_max, y_max = (float(side) * self._scale for side in box)
        right, bottom = self._size[0] - 1, self._size[1] - 1
        return _proper(
            min(max(x_min - margin, 0), right),
            min(max(y_min - margin, 0), bottom),
            min(max(x_max + margin, 0), right),
            min(max(y_max + margin, 0), bottom),
        )


def _proper(x_min: float, y_min: float, x_max: float, y_max: float) -> Rectangle:
    return x_min, y_min, max(x_min, x_max), max(y_min, y_max)


def _overlap(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
