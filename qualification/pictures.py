"""Annotated images for the report: what was detected, drawn on the image."""

import colorsys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from qualification.evidence import Seen

LONGEST_SIDE = 1000  # pixels


def annotate(image: Path, seen: Seen, target: Path) -> None:
    """Draw each box with its label and score; written as JPEG, shrunk to `LONGEST_SIDE`."""
    picture, scale = shrunk(image, LONGEST_SIDE)
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=14)
    found = seen.detections
    for box, score, class_id, label in reversed(
        list(zip(found.boxes, found.scores, found.class_ids, seen.labels, strict=True))
    ):
        colour = _colour(int(class_id))
        x_min, y_min, x_max, y_max = (float(side) * scale for side in box)
        draw.rectangle((x_min, y_min, x_max, y_max), outline=colour, width=3)
        text = f"{label} {score:.2f}"
        left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
        at = (x_min, max(0, y_min - (bottom - top) - 6))
        draw.rectangle((*at, at[0] + right - left + 8, at[1] + bottom - top + 6), fill=colour)
        draw.text((at[0] + 4, at[1] + 3 - top), text, fill="white", font=font)
    picture.save(target, quality=85)


def shrunk(image: Path, longest_side: int) -> tuple[Image.Image, float]:
    """The upright image in RGB, no side above `longest_side` pixels, and its scale (at most 1)."""
    with Image.open(image) as opened:
        picture = ImageOps.exif_transpose(opened).convert("RGB")
    scale = min(1.0, longest_side / max(picture.size))
    return picture.resize((round(picture.width * scale), round(picture.height * scale))), scale


def _colour(class_id: int) -> tuple[int, int, int]:
    """Neighbouring classes get far hues: steps of the golden ratio round the colour circle."""
    red, green, blue = colorsys.hls_to_rgb(class_id * 0.618 % 1, 0.38, 0.8)
    return round(red * 255), round(green * 255), round(blue * 255)
