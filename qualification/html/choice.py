"""Which images of a run the page shows: where it is worst, in two senses, and what is typical.

The worst are what a reader looks for first; the typical ones say what the worst are worth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.criteria import Criteria, pairwise_iou
from qualification.evidence import Seen
from qualification.html.truth import Truth

MATCH_IOU = 0.5  # for found and missed objects: the looser of COCO's two customary bounds


@dataclass(frozen=True)
class Against:
    """Detections of one image against its ground truth, those of unscored labels left out.

    Each box is matched once, the best-scored first, to an object of its category.
    extra: bool [N], missed: bool [M] over the objects.
    """

    extra: np.ndarray
    missed: np.ndarray

    @property
    def found(self) -> int:
        return int((~self.missed).sum())

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 1 where nothing was there and nothing found."""
        wrong = int(self.extra.sum() + self.missed.sum())
        return 2 * self.found / (2 * self.found + wrong) if self.found + wrong else 1.0


@dataclass(frozen=True)
class Chosen:
    """An image for the page.

    problem, differences: native against reference, by the family's criteria; None and empty
        without a reference.
    """

    kind: str
    native: Seen
    reference: Seen | None
    objects: tuple[np.ndarray, list[str]] | None
    against: Against | None
    problem: str | None
    differences: dict[str, float]


DIFFER = "Native and reference differ most"
INACCURATE = "Furthest from the ground truth"
TYPICAL = "Typical"


def against(seen: Seen, objects: tuple[np.ndarray, list[str]], truth: Truth) -> Against:
    boxes, names = objects
    categories = [truth.category(label) for label in seen.labels]
    overlaps = pairwise_iou(seen.detections.boxes, boxes)
    missed = np.ones(len(boxes), bool)
    extra = np.zeros(len(seen.labels), bool)
    for index, category in enumerate(categories):
        if category is None:
            continue
        same = np.array([name == category for name in names], bool) & missed
        fits = np.where(same, overlaps[index], 0) if len(boxes) else np.zeros(0)
        if len(fits) and fits.max() >= MATCH_IOU:
            missed[fits.argmax()] = False
        else:
            extra[index] = True
    return Against(extra, missed)


def choose(
    native: Sequence[Seen],
    reference: Sequence[Seen] | None,
    truth: Truth | None,
    criteria: Criteria | None,
    count: int,
) -> list[Chosen]:
    """At most `count` images, the most telling first; each image once.

    In turn one on which native and reference differ most (while they differ at all), one with the
    lowest F1 against the ground truth, and one next to the median F1.
    """
    objects = truth.boxes() if truth else {}
    others: Sequence[Seen | None] = reference or [None] * len(native)
    cases = [
        _case(ours, theirs, objects.get(ours.image), truth, criteria)
        for ours, theirs in zip(native, others, strict=True)
    ]
    queues = {DIFFER: _most_different(cases, criteria), **_by_accuracy(cases)}
    chosen: list[Chosen] = []
    taken: set[str] = set()
    while len(chosen) < count and any(queues.values()):
        for kind, queue in queues.items():
            while queue and queue[0].native.image in taken:
                queue.pop(0)
            if queue and len(chosen) < count:
                case = queue.pop(0)
                taken.add(case.native.image)
                chosen.append(Chosen(**{**vars(case), "kind": kind}))
    return chosen


def _case(
    native: Seen,
    reference: Seen | None,
    objects: tuple[np.ndarray, list[str]] | None,
    truth: Truth | None,
    criteria: Criteria | None,
) -> Chosen:
    problem, differences = None, {}
    if reference is not None and criteria is not None:
        compared = criteria.compare(
            native.detections, _by_id(native), reference.detections, _by_id(reference)
        )
        problem, differences = compared.problem, compared.differences
    judged = against(native, objects, truth) if truth and objects is not None else None
    return Chosen("", native, reference, objects, judged, problem, differences)


def _most_different(cases: Sequence[Chosen], criteria: Criteria | None) -> list[Chosen]:
    """Failing images first, then by the largest difference as a share of its bound."""
    if criteria is None:
        return []
    shares = [(case.problem is not None, _share(case.differences, criteria)) for case in cases]
    order = sorted(range(len(cases)), key=lambda index: shares[index], reverse=True)
    return [cases[index] for index in order if any(shares[index])]


def _share(differences: Mapping[str, float], criteria: Criteria) -> float:
    """1 where a difference is at its bound, 0 where there is none."""
    shares = [0.0]
    for name, bound in criteria.bounds().items():
        if name in differences:
            value = differences[name]
            lower = name in criteria.at_least
            shares.append((1 - value) / (1 - bound) if lower else value / bound)
    return max(shares)


def _by_accuracy(cases: Sequence[Chosen]) -> dict[str, list[Chosen]]:
    """The least accurate first, and the typical first; without ground truth, by box count."""
    judged = {case.native.image: case.against for case in cases if case.against is not None}
    if not judged:
        counts = [len(case.native.labels) for case in cases]
        middle = float(np.median(counts)) if counts else 0
        return {TYPICAL: sorted(cases, key=lambda case: abs(len(case.native.labels) - middle))}
    f1 = {image: one.f1 for image, one in judged.items()}
    middle = float(np.median(list(f1.values())))
    return {
        INACCURATE: sorted(
            (case for case in cases if f1[case.native.image] < 1),
            key=lambda case: (f1[case.native.image], -len(judged[case.native.image].missed)),
        ),
        TYPICAL: sorted(
            cases,
            # of equals the one that shows more kinds of objects
            key=lambda case: (
                round(abs(f1[case.native.image] - middle), 3),
                -len(set(case.native.labels)),
            ),
        ),
    }


def _by_id(seen: Seen) -> list[str]:
    """The labels that occur, by class id."""
    ids = seen.detections.class_ids
    names = [""] * (int(ids.max()) + 1 if len(ids) else 0)
    for class_id, label in zip(ids, seen.labels, strict=True):
        names[class_id] = label
    return names
