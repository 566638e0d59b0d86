"""`MatchedCriteria`: detections compared as sets, with the smallest bounds that would pass."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.criteria import MatchedCriteria, pairwise_iou
from models.detections import Detections

LABELS = ["cat", "dog", "bird"]
CRITERIA = MatchedCriteria(iou=0.5, score=0.05)
BOX = [10.0, 10.0, 50.0, 50.0]
MOVED = [20.0, 10.0, 60.0, 50.0]  # IoU 0.6 with BOX
FAR = [60.0, 60.0, 90.0, 90.0]

Row = tuple[list[float], float, int]  # box, score, class id


def found(*rows: Row) -> Detections:
    ordered = sorted(rows, key=lambda row: -row[1])
    return Detections(
        boxes=np.array([row[0] for row in ordered], np.float32).reshape(-1, 4),
        scores=np.array([row[1] for row in ordered], np.float32),
        class_ids=np.array([row[2] for row in ordered], np.int32),
        height=100,
        width=100,
    )


@pytest.mark.parametrize(
    ("native", "reference", "problem", "differences"),
    [
        ([], [], None, {"iou": 1.0, "score": 0.0}),
        ([(BOX, 0.9, 0)], [(BOX, 0.9, 0)], None, {"iou": 1.0, "score": 0.0}),
        ([(BOX, 0.9, 0)], [(MOVED, 0.86, 0)], None, {"iou": 0.6, "score": 0.04}),
        ([(BOX, 0.9, 0)], [(BOX, 0.8, 0)], "no cat", {"iou": 1.0, "score": 0.1}),
        ([(BOX, 0.9, 0)], [(FAR, 0.9, 0)], "no cat", {"iou": 0.0, "score": 0.0}),
        ([(BOX, 0.9, 0)], [(BOX, 0.9, 1)], "no dog", {}),
        ([(BOX, 0.9, 0)], [], "1 boxes, the reference has 0", {}),
        (
            [(BOX, 0.9, 0), (FAR, 0.89, 1)],
            [(BOX, 0.89, 0), (FAR, 0.9, 1)],  # the other order of near-equal scores
            None,
            {"iou": 1.0, "score": 0.01},
        ),
        (  # two of ours on one of theirs are not two matches
            [(BOX, 0.9, 0), (MOVED, 0.88, 0)],
            [(BOX, 0.9, 0), (FAR, 0.88, 0)],
            "no cat",
            {"iou": 0.0, "score": 0.0},
        ),
    ],
)
def test_same_class_one_to_one_within_the_bounds(
    native: list[Row], reference: list[Row], problem: str | None, differences: dict[str, float]
) -> None:
    compared = CRITERIA.compare(found(*native), LABELS, found(*reference), LABELS)
    assert (compared.problem is None) == (problem is None), compared.problem
    assert (problem or "") in (compared.problem or "")
    assert compared.differences == pytest.approx(differences, abs=1e-6)


def test_a_permuted_label_list_is_a_difference() -> None:
    same = found((BOX, 0.9, 0))
    compared = CRITERIA.compare(same, ["dog", "cat", "bird"], same, LABELS)
    assert compared.problem is not None


def test_a_greedy_choice_that_blocks_another_pair_is_undone() -> None:
    # best overlap first pairs ours 0 with theirs 0 (IoU 1), which leaves ours 1 with theirs 1,
    # out of bounds; the other way round both are within
    native = found((BOX, 0.9, 0), ([30.0, 10.0, 70.0, 50.0], 0.9, 0))
    reference = found((BOX, 0.9, 0), ([0.0, 10.0, 40.0, 50.0], 0.9, 0))
    criteria = MatchedCriteria(iou=0.3, score=0.05)
    compared = criteria.compare(native, LABELS, reference, LABELS)
    assert compared.problem is None
    assert compared.differences["iou"] == pytest.approx(1 / 3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31))
def test_a_matching_is_found_whenever_some_order_of_pairs_is_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))

    def some() -> Detections:
        corner = rng.uniform(0, 30, (count, 2))
        boxes = np.concatenate([corner, corner + rng.uniform(20, 60, (count, 2))], 1)
        scores = rng.uniform(0.5, 0.6, count)
        classes = rng.integers(0, 2, count)
        return found(*zip(boxes.tolist(), scores.tolist(), classes.tolist(), strict=True))

    native, reference = some(), some()
    overlaps = pairwise_iou(native.boxes, reference.boxes)
    gaps = np.abs(native.scores[:, None].astype(float) - reference.scores[None])
    allowed = (overlaps >= 0.5) & (gaps <= 0.05)
    allowed &= native.class_ids[:, None] == reference.class_ids[None]
    possible = any(
        all(allowed[mine, other] for other, mine in enumerate(order))
        for order in permutations(range(count))
    )
    compared = CRITERIA.compare(native, LABELS, reference, LABELS)
    assert (compared.problem is None) == possible
