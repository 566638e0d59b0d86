"""Owning criteria: how close a family's detections must be to its reference's on one image.

A comparison is data: it says what was measured, so that a gate can be re-judged and can print the
smallest bounds that would have passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from models.detections import Detections


@dataclass(frozen=True)
class Comparison:
    """Native against reference on one image.

    differences: what was measured, by the name of its bound (`score`, `side_px`, …); empty when
        the two could not be paired.
    problem: the sentence that says why the image fails, or None when it agrees.
    """

    differences: dict[str, float]
    problem: str | None


class Criteria(Protocol):
    def bounds(self) -> dict[str, float]:
        """The bounds by name."""
        ...

    def compare(
        self,
        native: Detections,
        native_labels: Sequence[str],
        reference: Detections,
        reference_labels: Sequence[str],
    ) -> Comparison:
        """Labels are lists by class id, each side's own: a permuted label list is a difference."""
        ...


@dataclass(frozen=True)
class RankedCriteria:
    """YOLO families: the same count; at each rank the same class, scores closer than `score` and
    every box side closer than `side_px` source pixels.

    Boxes whose scores are closer to each other than `score` may stand in either order, because
    the order of near-equal scores is not defined (Polygraphy #1194); each still needs its own
    partner within the bounds.
    """

    score: float
    side_px: float

    def bounds(self) -> dict[str, float]:
        return {"score": self.score, "side_px": self.side_px}

    def compare(
        self,
        native: Detections,
        native_labels: Sequence[str],
        reference: Detections,
        reference_labels: Sequence[str],
    ) -> Comparison:
        if len(native) != len(reference):
            return Comparison({}, f"{len(native)} boxes, the reference has {len(reference)}")
        ours = np.array([native_labels[index] for index in native.class_ids], object)
        theirs = np.array([reference_labels[index] for index in reference.class_ids], object)
        worst = {"score": 0.0, "side_px": 0.0}
        free = np.ones(len(native), bool)
        for rank in range(len(reference)):
            gaps = np.abs(native.scores.astype(float) - float(reference.scores[rank]))
            candidates = np.flatnonzero(free & (ours == theirs[rank]) & (gaps < self.score))
            if not len(candidates):
                return Comparison(
                    {},
                    f"rank {rank}: no {theirs[rank]} within {self.score:g} of the reference's "
                    f"score {reference.scores[rank]:.4f}; native has {ours[rank]} "
                    f"{native.scores[rank]:.4f}",
                )
            sides = np.abs(
                native.boxes[candidates].astype(float) - reference.boxes[rank].astype(float)
            ).max(axis=1)
            nearest = int(sides.argmin())
            partner = candidates[nearest]
            free[partner] = False
            worst["score"] = max(worst["score"], float(gaps[partner]))
            worst["side_px"] = max(worst["side_px"], float(sides[nearest]))
        if worst["side_px"] >= self.side_px:
            return Comparison(
                worst, f"a box side differs by {worst['side_px']:.3f} px (bound {self.side_px:g})"
            )
        return Comparison(worst, None)
