"""Datasets for qualification: images with ground truth, their selection and their identity."""

import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import PIL

from models.catalogue import CocoDataset, PagesDataset
from models.errors import QualificationError
from models.home import data, home
from qualification.datasets import pages, sheet

IMAGES = 100  # images of a dataset gate (DESIGN section 4.3)
MIN_AREA = 0.01  # share of the image an object must cover to bring its image in


@dataclass(frozen=True)
class DatasetImage:
    """One image. `id` is its id in the ground truth."""

    id: int
    name: str
    path: Path


@dataclass(frozen=True)
class Dataset:
    """Images with ground truth in COCO's format.

    digest: sha256 over every file of the dataset and the ids of the images taken from it.
    ground_truth: a COCO document that holds the taken images and their annotations alone.
    """

    name: str
    digest: str
    images: list[DatasetImage]
    ground_truth: dict[str, Any]


def load(
    source: PagesDataset | CocoDataset, progress: Callable[[int, int], None] | None = None
) -> Dataset:
    """The dataset a checkpoint names; pages are drawn first where they are not yet.

    Raises:
        QualificationError: its folder is not there.
    """
    if isinstance(source, PagesDataset):
        folder = home() / "datasets" / f"pages-{_drawing()}"
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            pages.write(folder, IMAGES, progress)
        return read("pages", folder)
    folder = data() / source.folder
    if not (folder / "instances.json").is_file():
        raise QualificationError(
            f"no dataset in {folder}: it needs images/ and instances.json in COCO's format "
            f"(set DETSERVE_DATA to the folder that holds {source.folder}/)"
        )
    return select(read(source.folder, folder), source.images or IMAGES)


def _drawing() -> str:
    """Names the drawn pages by what draws them, so that a change draws them anew."""
    sources = [inspect.getsource(module) for module in (pages, sheet)]
    return hashlib.sha256("".join([*sources, PIL.__version__]).encode()).hexdigest()[:12]


def read(name: str, folder: Path) -> Dataset:
    """Every image of a COCO folder, with its ground truth as it stands."""
    document = json.loads((folder / "instances.json").read_text())
    for annotation in document["annotations"]:
        annotation.setdefault("iscrowd", 0)  # pycocotools needs it, some exporters leave it out
    images = [
        DatasetImage(image["id"], image["file_name"], folder / "images" / image["file_name"])
        for image in document["images"]
    ]
    return Dataset(name, digest(folder), images, document)


def select(whole: Dataset, count: int = IMAGES) -> Dataset:
    """The 100 images of the gate (FACTS section 1, "The 100 images").

    Annotations in ascending id, crowds and empty boxes left out; an image qualifies for a
    category by an object of at least 1 % of its area; round the categories in ascending id, each
    gives its next image, and loses its turn when that image is already taken.
    """
    document = whole.ground_truth
    areas = {image["id"]: image["width"] * image["height"] for image in document["images"]}
    valid = [
        annotation
        for annotation in sorted(document["annotations"], key=lambda annotation: annotation["id"])
        if not annotation.get("iscrowd")
        and annotation["area"] > 0
        and annotation["bbox"][2] > 0
        and annotation["bbox"][3] > 0
    ]
    queues: dict[int, list[int]] = {category["id"]: [] for category in document["categories"]}
    for annotation in valid:
        queue, image = queues[annotation["category_id"]], annotation["image_id"]
        if annotation["area"] >= MIN_AREA * areas[image] and image not in queue:
            queue.append(image)
    taken: list[int] = []
    while len(taken) < count and any(queues.values()):
        for category in sorted(queues):
            if queues[category] and len(taken) < count:
                image = queues[category].pop(0)
                if image not in taken:
                    taken.append(image)
    chosen = set(taken)
    by_id = {image.id: image for image in whole.images}
    identity = f"{whole.digest} {taken}"
    return Dataset(
        name=f"{whole.name}-{len(taken)}",
        digest=hashlib.sha256(identity.encode()).hexdigest(),
        images=[by_id[image] for image in taken],
        ground_truth={
            **document,
            "images": [image for image in document["images"] if image["id"] in chosen],
            "annotations": [annotation for annotation in valid if annotation["image_id"] in chosen],
        },
    )


def digest(folder: Path) -> str:
    """The identity of any dataset in COCO's format: sha256 over its files' names and contents.

    The same as `sha256sum images/* instances.json | LC_ALL=C sort -k 2 | sha256sum` prints there.
    """
    files = [path for path in (folder / "images").rglob("*") if path.is_file()]
    lines = []
    for path in [*files, folder / "instances.json"]:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        lines.append((path.relative_to(folder).as_posix(), content))
    listing = "".join(f"{content}  {name}\n" for name, content in sorted(lines))
    return hashlib.sha256(listing.encode()).hexdigest()
