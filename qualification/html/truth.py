"""The ground truth that a run was judged by, for the page's pictures and curves.

It lies in the run's folder; the images themselves do not, and only the very dataset of the run will
do for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models import catalogue
from models.errors import DetserveError
from qualification import saved_run, stages
from qualification.datasets import coco
from qualification.datasets.coco import Dataset
from qualification.results import ModelRow


@dataclass(frozen=True)
class Truth:
    """labels: checkpoint label -> dataset category, None where the names are the same."""

    dataset: Dataset
    labels: Mapping[str, str] | None

    def category(self, label: str) -> str | None:
        """The dataset's name for a checkpoint's label; None when it is not scored."""
        name = label if self.labels is None else self.labels.get(label)
        names = {category["name"] for category in self.dataset.ground_truth["categories"]}
        return name if name in names else None

    def boxes(self) -> dict[str, tuple[np.ndarray, list[str]]]:
        """By image name: float32 [N, 4] xyxy in pixels, and each box's category. Without crowds,
        which stand for no single object."""
        document = self.dataset.ground_truth
        names = {category["id"]: category["name"] for category in document["categories"]}
        found: dict[int, list[tuple[list[float], str]]] = {}
        for annotation in document["annotations"]:
            if not annotation.get("iscrowd"):
                x, y, width, height = annotation["bbox"]
                found.setdefault(annotation["image_id"], []).append(
                    ([x, y, x + width, y + height], names[annotation["category_id"]])
                )
        return {
            image.name: (
                np.array([box for box, _ in found.get(image.id, [])], np.float32).reshape(-1, 4),
                [name for _, name in found.get(image.id, [])],
            )
            for image in self.dataset.images
        }


def read(folder: Path) -> Truth | None:
    """The ground truth beside a model's folder; None where the run has none."""
    bundle = stages.saved(folder / "bundle.json")
    if bundle is None or "dataset" not in bundle.data:
        return None
    dataset = saved_run.read_dataset(folder.parent, bundle.data["dataset"])
    return Truth(dataset, bundle.data["checkpoint"]["dataset"].get("labels"))


def images(row: ModelRow) -> dict[str, Path] | None:
    """The image files by name; None where the very dataset of the run is not on this machine."""
    if row.checkpoint is None or row.dataset is None:
        return None
    try:
        dataset = coco.load(catalogue.load(row.checkpoint).dataset)
    except DetserveError:
        return None
    if dataset.digest != row.dataset.digest:
        return None
    return {image.name: image.path for image in dataset.images}
