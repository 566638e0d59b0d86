"""Statistics beside the gates: which images differ, how near the threshold, how sure a difference.

The gates decide; these explain. Intervals are percentile bootstraps with a fixed seed, so the same
evidence gives the same figures.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from models.criteria import Criteria
from qualification.average_precision import Matches, matches
from qualification.datasets.coco import Dataset
from qualification.evidence import Seen

RESAMPLES = 1000
LEVEL = 0.95
WORST = 5
_SEED = 20261201


class _Figures(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Interval(_Figures):
    """An estimate and its 95 % interval."""

    estimate: float
    low: float
    high: float


class MapDifferences(_Figures):
    """Native less reference, over resampled images (both sides get the same ones)."""

    map: Interval = Field(description="mAP@[.50:.95], the reference system's definition")
    map50: Interval = Field(description="mAP@.50, the same")


class ImageDifference(_Figures):
    """One image, native against reference."""

    image: str
    native_boxes: int
    reference_boxes: int
    differences: dict[str, float] = Field(
        description="by the name of the bound; empty where the two could not be paired"
    )
    problem: str | None = Field(description="why the image is outside the bounds")


class Agreement(_Figures):
    """Native against reference over all images, at the served threshold."""

    images: list[ImageDifference]
    boxes: int = Field(description="of the native side")
    near_threshold: int = Field(
        description="native boxes whose score the threshold exceeds by less than scores may differ"
    )

    def summary(self, at_least: frozenset[str], differences: MapDifferences | None) -> "Statistics":
        """at_least: of the criteria."""
        return Statistics(
            boxes=self.boxes,
            near_threshold=self.near_threshold,
            worst_images=self.worst(at_least),
            map_differences=differences,
        )

    def worst(self, at_least: frozenset[str]) -> list[ImageDifference]:
        """The images furthest apart: those outside the bounds first."""

        def distance(one: ImageDifference) -> tuple[bool, bool, float]:
            signed = (
                -value if name in at_least else value for name, value in one.differences.items()
            )
            return one.problem is None, bool(one.differences), -max(signed, default=0.0)

        return sorted(self.images, key=distance)[:WORST]


class Statistics(_Figures):
    """Of one model's row: they explain, the gates decide."""

    boxes: int = Field(description="native detections on all images at the served threshold")
    near_threshold: int = Field(
        description="of them, those less than the criteria's bound on scores above the threshold"
    )
    worst_images: list[ImageDifference] = Field(
        description="native against reference: outside the bounds first, then the furthest apart"
    )
    map_differences: MapDifferences | None = Field(
        description="native less reference with 95 % intervals (paired bootstrap over images)"
    )


def agreement(
    criteria: Criteria,
    native: Sequence[Seen],
    native_labels: Sequence[str],
    reference: Sequence[Seen],
    reference_labels: Sequence[str],
    threshold: float,
) -> Agreement:
    """Labels are lists by class id, each side's own."""
    images = []
    for ours, theirs in zip(native, reference, strict=True):
        found = criteria.compare(
            ours.detections, native_labels, theirs.detections, reference_labels
        )
        images.append(
            ImageDifference(
                image=ours.image,
                native_boxes=len(ours.detections),
                reference_boxes=len(theirs.detections),
                differences=found.differences,
                problem=found.problem,
            )
        )
    scores = np.concatenate([one.detections.scores for one in native] or [np.zeros(0)])
    return Agreement(
        images=images,
        boxes=len(scores),
        near_threshold=int((scores < threshold + criteria.score).sum()),
    )


def map_differences(
    dataset: Dataset,
    native: Sequence[Seen],
    reference: Sequence[Seen],
    labels: Mapping[str, str] | None,
) -> MapDifferences:
    """labels: as of `mean_ap`."""
    ours, theirs = (matches(dataset, side, labels) for side in (native, reference))
    return between(ours, theirs)


def between(ours: Matches, theirs: Matches) -> MapDifferences:
    """Both on the same images, which are drawn together: a paired bootstrap."""
    draws = np.random.default_rng(_SEED)
    weights = draws.multinomial(
        ours.images, np.full(ours.images, 1 / ours.images), RESAMPLES
    ).astype(float)
    gaps = ours.mean(weights) - theirs.mean(weights)
    return MapDifferences(
        map=_interval(ours.map - theirs.map, gaps.mean(axis=1)),
        map50=_interval(ours.map50 - theirs.map50, gaps[:, 0]),
    )


def median_ratio(before: Sequence[float], after: Sequence[float]) -> Interval:
    """The median of the ratios of pairs, such as two latencies with the same image: what makes one
    image slower than another is then no noise."""
    ratios = np.asarray(after, float) / np.asarray(before, float)
    chosen = np.random.default_rng(_SEED).integers(0, len(ratios), (RESAMPLES, len(ratios)))
    return _interval(float(np.median(ratios)), np.median(ratios[chosen], axis=1))


def _interval(estimate: float, resampled: np.ndarray) -> Interval:
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(estimate=estimate, low=float(low), high=float(high))
