"""The ground truth that a run was judged by, for the page's pictures and curves.

Only the very dataset of the run will do: one that has changed since is no ground truth of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models import catalogue
from models.errors import DetserveError
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


def read(row: ModelRow) -> Truth | None:
    """The dataset of that row; None where it is not on this machine as it was in the run."""
    if row.checkpoint is None or row.dataset is None:
        return None
    try:
        source = catalogue.load(row.checkpoint).dataset
        dataset = coco.load(source)
    except DetserveError:
        return None
    if dataset.digest != row.dataset.digest:
        return None
    return Truth(dataset, getattr(source, "labels", None))
