"""A hundred document pages drawn with Pillow, their layout boxes known: a dataset in COCO's format.

A mAP gate needs images and ground truth on every machine, with no download and no licence to ask.
"""

import json
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from qualification.datasets.sheet import NOUNS, Box, Sheet, heading

# DocLayNet's names: those that YOLOv8n trained on it finds on drawn pages (it takes a Title for a
# Section-header). COCO's category ids count from 1 in this order.
LABELS = (
    "Caption",
    "List-item",
    "Page-footer",
    "Page-header",
    "Picture",
    "Section-header",
    "Table",
    "Text",
)


@dataclass(frozen=True)
class Page:
    """One drawn page: an RGB image and the boxes on it, each tight around the ink it names."""

    name: str
    image: Image.Image
    boxes: list[tuple[str, Box]]


def draw_page(index: int) -> Page:
    """The dataset's page at an index, the same on every call and machine."""
    rng = random.Random(index)
    sheet = Sheet(rng)
    width, height, small = sheet.width, sheet.height, round(sheet.body * 0.85)
    columns = rng.choice((1, 2, 2)) if width < height else 2
    margin = round(width * (rng.uniform(0.12, 0.15) if columns == 1 else rng.uniform(0.07, 0.1)))
    if rng.random() < 0.6:
        y = round(height * 0.045)
        sheet.words(margin, y, f"{heading(rng)} {rng.choice(NOUNS)} report", small)
        sheet.mark("Page-header", (0, y, width, y + small * 2))
    if rng.random() < 0.8:
        y = round(height * 0.95)
        text = f"{heading(rng)}, page {rng.randint(1, 400)}"
        sheet.words(width // 2, y, text, small, align=0.5)
        sheet.mark("Page-footer", (0, y, width, y + small * 2))
    gutter = round(width * 0.035) * (columns - 1)
    column = (width - 2 * margin - gutter) // columns
    floats = ["figure", "table", rng.choice(("figure", "table", "list", "list"))]
    rng.shuffle(floats)
    for number in range(columns):
        left = margin + number * (column + gutter)
        sheet.column(
            left, round(height * 0.09), column, round(height * 0.92), floats[number::columns]
        )
    return Page(f"page-{index:03d}", sheet.image, sheet.boxes)


def write(
    folder: Path, count: int = 100, progress: Callable[[int, int], None] | None = None
) -> None:
    """Writes `images/` (every fifth a PNG, the others JPEG) and `instances.json`, or nothing.

    progress is told the number of pages written and the number asked for.

    Raises:
        FileExistsError: the folder is there already; it is left as it was.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is there already: remove it to draw the pages again")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        unfinished = Path(temporary) / "pages"
        (unfinished / "images").mkdir(parents=True)
        images: list[dict[str, object]] = []
        annotations: list[dict[str, object]] = []
        for index in range(count):
            page = draw_page(index)
            name = f"{page.name}.{'png' if index % 5 == 4 else 'jpg'}"
            page.image.save(unfinished / "images" / name, quality=90)
            width, height = page.image.size
            images.append({"id": index + 1, "file_name": name, "width": width, "height": height})
            for label, (x_min, y_min, x_max, y_max) in page.boxes:
                annotation = {
                    "id": len(annotations) + 1,
                    "image_id": index + 1,
                    "category_id": LABELS.index(label) + 1,
                    "bbox": [x_min, y_min, x_max - x_min, y_max - y_min],
                    "area": (x_max - x_min) * (y_max - y_min),
                    "iscrowd": 0,
                }
                annotations.append(annotation)
            if progress is not None:
                progress(index + 1, count)
        categories = [{"id": number, "name": label} for number, label in enumerate(LABELS, start=1)]
        instances = {"images": images, "annotations": annotations, "categories": categories}
        (unfinished / "instances.json").write_text(json.dumps(instances), encoding="utf-8")
        unfinished.rename(folder)
