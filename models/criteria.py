"""Owning criteria: how close a family's detections must be to its reference's on one image.

A comparison is data: it says what was measured, so that a gate can be re-judged and can print the
smallest bounds that would have passed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

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
    """at_least: names of the bounds that are lower ones, such as an overlap's."""

    @property
    def at_least(self) -> frozenset[str]: ...

    @property
    def score(self) -> float:
        """How far two scores of one object may be apart."""
        ...

    def bounds(self) -> dict[str, float]:
        """The bounds by name."""
        ...

    def needed(self) -> str:
        """The bounds in words."""
        ...

    def bounded(self, bounds: Mapping[str, float]) -> "Criteria":
        """The same criteria at other bounds, such as those that a saved run was judged by."""
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

    def partners(
        self,
        native: Detections,
        native_labels: Sequence[str],
        reference: Detections,
        reference_labels: Sequence[str],
    ) -> np.ndarray:
        """bool [N, M]: which pairs of a native and a reference detection are within the bounds."""
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

    at_least: ClassVar[frozenset[str]] = frozenset()

    def bounds(self) -> dict[str, float]:
        return {"score": self.score, "side_px": self.side_px}

    def bounded(self, bounds: Mapping[str, float]) -> "RankedCriteria":
        return RankedCriteria(**bounds)

    def needed(self) -> str:
        return f"score < {self.score:g}, side_px < {self.side_px:g}"

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

    def partners(
        self,
        native: Detections,
        native_labels: Sequence[str],
        reference: Detections,
        reference_labels: Sequence[str],
    ) -> np.ndarray:
        same = _same_class(native, native_labels, reference, reference_labels)
        sides = native.boxes[:, None].astype(float) - reference.boxes[None].astype(float)
        near: np.ndarray = np.abs(sides).max(axis=2) < self.side_px
        allowed: np.ndarray = same & near & (_score_gaps(native, reference) < self.score)
        return allowed


@dataclass(frozen=True)
class MatchedCriteria:
    """DETR families: the same count, and for each detection one of the reference's of the same
    class, no two the same, that overlaps it by an IoU of at least `iou` and whose score differs by
    at most `score`.

    The order of near-equal scores carries no meaning, so ranks are not compared. Pairs are taken by
    falling IoU among those whose scores agree, and a pair that stands in the way of others is
    re-paired along an augmenting path (Kuhn 1955), so that a matching within the bounds is found
    whenever there is one: a purely greedy choice can leave two near-duplicate boxes unmatched.
    """

    iou: float = 0.5
    score: float = 0.05

    at_least: ClassVar[frozenset[str]] = frozenset({"iou"})

    def bounds(self) -> dict[str, float]:
        return {"iou": self.iou, "score": self.score}

    def bounded(self, bounds: Mapping[str, float]) -> "MatchedCriteria":
        return MatchedCriteria(**bounds)

    def needed(self) -> str:
        return f"iou >= {self.iou:g}, score <= {self.score:g}"

    def compare(
        self,
        native: Detections,
        native_labels: Sequence[str],
        reference: Detections,
        reference_labels: Sequence[str],
    ) -> Comparison:
        if len(native) != len(reference):
            return Comparison({}, f"{len(native)} boxes, the reference has {len(reference)}")
        if not len(native):
            return Comparison({"iou": 1.0, "score": 0.0}, None)
        theirs = [reference_labels[index] for index in reference.class_ids]
        overlaps = pairwise_iou(native.boxes, reference.boxes)
        gaps = _score_gaps(native, reference)
        same = _same_class(native, native_labels, reference, reference_labels)
        allowed = same & (overlaps >= self.iou) & (gaps <= self.score)
        partners = _matching(allowed, overlaps)
        paired = [(mine, other) for other, mine in enumerate(partners) if mine >= 0]
        if len(paired) == len(reference):
            rows, columns = (np.array(side) for side in zip(*paired, strict=True))
            measured = {
                "iou": float(overlaps[rows, columns].min()),
                "score": float(gaps[rows, columns].max()),
            }
            return Comparison(measured, None)
        other = int(np.flatnonzero(partners < 0)[0])
        return Comparison(
            self._nearest(same, overlaps, gaps),
            f"no {theirs[other]} of its own within IoU {self.iou:g} and score {self.score:g} of "
            f"the reference's {theirs[other]} {reference.scores[other]:.4f}",
        )

    def partners(
        self,
        native: Detections,
        native_labels: Sequence[str],
        reference: Detections,
        reference_labels: Sequence[str],
    ) -> np.ndarray:
        same = _same_class(native, native_labels, reference, reference_labels)
        overlap = pairwise_iou(native.boxes, reference.boxes) >= self.iou
        return same & overlap & (_score_gaps(native, reference) <= self.score)

    def _nearest(
        self, same: np.ndarray, overlaps: np.ndarray, gaps: np.ndarray
    ) -> dict[str, float]:
        """The smallest bounds that would have passed: the matching of each class with the least
        loss of overlap, whatever its scores; empty when the classes' counts differ."""
        partners = _matching(same, overlaps)
        if (partners < 0).any():
            return {}
        columns = np.arange(len(partners))
        return {
            "iou": float(overlaps[partners, columns].min()),
            "score": float(gaps[partners, columns].max()),
        }


def without_divided(
    criteria: Criteria,
    native: Detections,
    native_labels: Sequence[str],
    reference: Detections,
    reference_labels: Sequence[str],
    threshold: float,
) -> tuple[Detections, Detections, int]:
    """Both sides at `threshold` without the detections that the threshold divides, and how many.

    A detection is divided when one side has it at or above the threshold, the other below, and the
    two are within the criteria's bounds: scores that may differ can lie on two sides of a line, so
    counts at that line are no sign of a fault. Only for reduced precision, where it happens
    (docs/decisions/half-precision.md).

    native, reference: detections down to `threshold` less the bound on scores.
    """
    limit = np.float32(threshold)
    pairs = criteria.partners(native, native_labels, reference, reference_labels)
    ours, theirs = native.scores >= limit, reference.scores >= limit
    matched = _matching(pairs & (ours[:, None] != theirs[None]), pairs.astype(float))
    for other in np.flatnonzero(matched >= 0):
        ours[matched[other]] = theirs[other] = False
    return native.only(ours), reference.only(theirs), int((matched >= 0).sum())


def _same_class(
    native: Detections,
    native_labels: Sequence[str],
    reference: Detections,
    reference_labels: Sequence[str],
) -> np.ndarray:
    """bool [N, M], by the labels' names."""
    ours = np.array([native_labels[index] for index in native.class_ids], object)
    theirs = np.array([reference_labels[index] for index in reference.class_ids], object)
    same: np.ndarray = np.equal(ours[:, None], theirs[None]).astype(bool)
    return same


def _score_gaps(native: Detections, reference: Detections) -> np.ndarray:
    """float64 [N, M]."""
    gaps: np.ndarray = np.abs(
        native.scores[:, None].astype(float) - reference.scores[None].astype(float)
    )
    return gaps


def pairwise_iou(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """float64 [N, M] from xyxy boxes float32 [N, 4] and [M, 4]; equal boxes of no area give 1."""
    mine, other = ours.astype(float)[:, None], theirs.astype(float)[None]
    sides = np.minimum(mine[..., 2:], other[..., 2:]) - np.maximum(mine[..., :2], other[..., :2])
    shared = sides.clip(0).prod(-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).clip(0).prod(-1) for boxes in (mine, other)]
    union = areas[0] + areas[1] - shared
    equal = (mine == other).all(-1)
    return np.where(equal, 1.0, shared / np.where(union > 0, union, 1.0))


def _matching(allowed: np.ndarray, preference: np.ndarray) -> np.ndarray:
    """A largest one-to-one matching of rows to columns over the allowed pairs.

    allowed: bool [N, M]; preference: float [N, M], higher is tried first. Returns int [M]: the row
    of each column, or -1.
    """
    row_of = np.full(allowed.shape[1], -1)
    taken = np.zeros(allowed.shape[0], bool)
    for flat in np.argsort(-preference, axis=None, kind="stable"):
        row, column = np.unravel_index(flat, allowed.shape)
        if allowed[row, column] and not taken[row] and row_of[column] < 0:
            row_of[column], taken[row] = row, True

    def place(row: int, seen: set[int]) -> bool:
        for column in np.argsort(-preference[row], kind="stable"):
            if allowed[row, column] and int(column) not in seen:
                seen.add(int(column))
                if row_of[column] < 0 or place(int(row_of[column]), seen):
                    row_of[column] = row
                    return True
        return False

    for row in np.flatnonzero(~taken):
        place(int(row), set())
    return row_of
