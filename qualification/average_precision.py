"""Average precision by our own code: matches once an image, then any weighting of the images.

Why beside pycocotools: the reference system's definition differs from COCO's (one limit of 100
detections an image over all classes, no crowds), and an interval of a mAP needs thousands of
weightings of the same matches. docs/results.md says which figure a gate uses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qualification.datasets.coco import Dataset
from qualification.evidence import Seen

IOUS = np.linspace(0.5, 0.95, 10)  # .50 to .95 in steps of .05
RECALLS = np.linspace(0, 1, 101)
LIMIT = 100  # detections an image, over all classes
_CHUNK = 64  # weightings at a time: bounds the memory


@dataclass(frozen=True)
class ClassMatches:
    """A class's detections on all images, by falling score (the image's order at equal scores).

    image: int64 [D], its place among the dataset's by id. hit: bool [10, D], by `IOUS`: matched to
    an object. objects: int64 [images].
    """

    image: np.ndarray
    hit: np.ndarray
    objects: np.ndarray


@dataclass(frozen=True)
class Matches:
    """Detections of one model on a dataset against its ground truth; classes are those that the
    ground truth has."""

    images: int
    classes: Mapping[int, ClassMatches]

    def mean(self, weights: np.ndarray | None = None) -> np.ndarray:
        """mAP by IoU: float64 [W, 10], over the classes that the weighted images have.

        weights: float64 [W, images], how often each image counts; None: once.
        """
        weights = np.ones((1, self.images)) if weights is None else weights
        parts = [self._mean(each) for each in np.array_split(weights, -(-len(weights) // _CHUNK))]
        return np.concatenate(parts)

    def _mean(self, weights: np.ndarray) -> np.ndarray:
        total = np.zeros((len(weights), len(IOUS)))
        present = np.zeros((len(weights), 1))
        for found in self.classes.values():
            objects = weights @ found.objects
            total += _average_precision(found, weights, objects)
            present += (objects > 0)[:, None]
        return total / np.maximum(present, 1)

    @cached_property
    def map(self) -> float:
        """mAP@[.50:.95], 0..1."""
        return float(self.mean().mean())

    @cached_property
    def map50(self) -> float:
        """mAP@.50, 0..1."""
        return float(self.mean()[0, 0])


def matches(
    dataset: Dataset, seen: Sequence[Seen], labels: Mapping[str, str] | None = None
) -> Matches:
    """Match each image's detections to its objects, class by class, as COCO does: by falling
    score, each to the free object it overlaps most, if by at least the IoU.

    labels: as of `mean_ap`. Crowds are left out.
    """
    categories = {each["name"]: each["id"] for each in dataset.ground_truth["categories"]}
    # by id, as pycocotools goes through them: it decides which of two equal scores comes first
    ordered = sorted(dataset.images, key=lambda image: image.id)
    places = {image.name: place for place, image in enumerate(ordered)}
    of_id = {image.id: place for place, image in enumerate(ordered)}
    truth: dict[int, dict[int, list[list[float]]]] = {}
    for each in dataset.ground_truth["annotations"]:
        if not each.get("iscrowd"):
            boxes = truth.setdefault(each["category_id"], {}).setdefault(
                of_id[each["image_id"]], []
            )
            boxes.append(each["bbox"])
    by_image = {places[one.image]: _scored(one, categories, labels) for one in seen}
    return Matches(
        len(places),
        {
            category: _class_matches(category, objects, by_image, len(places))
            for category, objects in truth.items()
        },
    )


def _scored(
    one: Seen, categories: Mapping[str, int], labels: Mapping[str, str] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best detections of the dataset's categories: boxes [D, 4] xyxy, scores, categories."""
    names = [label if labels is None else labels.get(label, "") for label in one.labels]
    found = np.array([categories.get(name, -1) for name in names], int)
    scores = one.detections.scores.astype(float)
    kept = np.flatnonzero(found >= 0)
    kept = kept[np.argsort(-scores[kept], kind="stable")][:LIMIT]
    return one.detections.boxes.astype(float)[kept], scores[kept], found[kept]


def _class_matches(
    category: int,
    objects: Mapping[int, list[list[float]]],
    by_image: Mapping[int, tuple[np.ndarray, np.ndarray, np.ndarray]],
    images: int,
) -> ClassMatches:
    counts = np.zeros(images, np.int64)
    for place, held in objects.items():
        counts[place] = len(held)
    image, scores, hits = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros((len(IOUS), 0), bool)]
    for place in sorted(by_image):
        boxes, all_scores, found = by_image[place]
        chosen = found == category
        if chosen.any():
            image.append(np.full(chosen.sum(), place))
            scores.append(all_scores[chosen])
            hits.append(_hits(boxes[chosen], np.array(objects.get(place, [])).reshape(-1, 4)))
    order = np.argsort(-np.concatenate(scores), kind="stable")
    return ClassMatches(
        np.concatenate(image)[order], np.concatenate(hits, axis=1)[:, order], counts
    )


def _hits(boxes: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """bool [10, D]. boxes: [D, 4] xyxy by falling score; objects: [G, 4] left, top, width, height
    as COCO has them."""
    hit = np.zeros((len(IOUS), len(boxes)), bool)
    if not len(objects):
        return hit
    corners = np.hstack([objects[:, :2], objects[:, :2] + objects[:, 2:]])
    low = np.maximum(boxes[:, None, :2], corners[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], corners[None, :, 2:])
    overlap = np.prod(np.maximum(high - low, 0), axis=2)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    union = areas[:, None] + np.prod(objects[:, 2:], axis=1) - overlap
    ious = np.divide(overlap, union, out=np.zeros_like(overlap), where=union > 0)
    for level, needed in enumerate(IOUS):
        free = np.ones(len(objects), bool)
        for rank in range(len(boxes)):
            candidates = np.where(free, ious[rank], -1.0)
            best = len(candidates) - 1 - int(candidates[::-1].argmax())  # the last of equal ones
            if candidates[best] >= needed:
                free[best] = False
                hit[level, rank] = True
    return hit


def _average_precision(found: ClassMatches, weights: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """float64 [W, 10]: precision at 101 recalls, each the best at that recall or a higher one,
    averaged (COCO's metric); 0 where the weighted images have no object.

    objects: float64 [W], how many there are.
    """
    if not len(found.image):
        return np.zeros((len(weights), len(IOUS)))
    counted = weights[:, None, found.image]  # [W, 1, D]
    hits = np.cumsum(counted * found.hit, axis=2)
    seen = np.cumsum(counted, axis=2)
    precision = np.divide(hits, seen, out=np.zeros_like(hits), where=seen > 0)
    best = np.maximum.accumulate(precision[:, :, ::-1], axis=2)[:, :, ::-1]
    recall = hits / np.maximum(objects, 1)[:, None, None]
    # how many of the recalls each detection is the first to reach; the first reaches recall 0
    reached = np.searchsorted(RECALLS, recall, side="right")
    steps = np.diff(reached, axis=2, prepend=0)
    averages: np.ndarray = (steps * best).sum(axis=2) / len(RECALLS)
    averages[objects <= 0] = 0
    return averages
