"""`RankedCriteria`: each way in which native can differ from the reference is seen, by name."""

import numpy as np
import pytest

from models.criteria import MatchedCriteria, RankedCriteria, without_divided
from models.detections import Detections

CRITERIA = RankedCriteria(score=0.005, side_px=1.0)
LABELS = ["cat", "dog", "bird"]
BOXES = [[0, 0, 10, 10], [20, 20, 60, 60], [100, 0, 150, 90]]
SCORES = [0.9, 0.6, 0.3]
CLASSES = [0, 1, 2]


def detections(boxes=BOXES, scores=SCORES, class_ids=CLASSES) -> Detections:
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(scores, np.float32),
        np.array(class_ids, np.int32),
        height=100,
        width=200,
    )


def moved(index: int, by: float) -> list[list[float]]:
    """The boxes with one right side moved."""
    return [[*box[:2], box[2] + by * (place == index), box[3]] for place, box in enumerate(BOXES)]


REFERENCE = detections()


def compare(native: Detections, reference: Detections = REFERENCE, labels=LABELS):
    return CRITERIA.compare(native, labels, reference, LABELS)


@pytest.mark.parametrize(
    ("native", "score", "side_px"),
    [
        pytest.param(detections(), 0, 0, id="the same"),
        pytest.param(detections(scores=[0.9, 0.604, 0.3]), 0.004, 0, id="a score close enough"),
        pytest.param(detections(boxes=moved(1, 0.75)), 0, 0.75, id="a side close enough"),
        pytest.param(
            detections(boxes=moved(2, -0.5), scores=[0.898, 0.6, 0.3]),
            0.002,
            0.5,
            id="the worst score and the worst side of two boxes",
        ),
    ],
)
def test_agreement_states_the_largest_differences(native, score, side_px) -> None:
    compared = compare(native)
    assert compared.problem is None
    assert compared.differences == pytest.approx({"score": score, "side_px": side_px}, abs=1e-6)


def test_two_empty_answers_agree() -> None:
    empty = detections([], [], [])
    compared = compare(empty, empty)
    assert compared.problem is None
    assert compared.differences == {"score": 0, "side_px": 0}


@pytest.mark.parametrize(
    ("native", "sentence"),
    [
        pytest.param(detections([], [], []), "0 boxes, the reference has 3", id="nothing"),
        pytest.param(
            detections(BOXES[:2], SCORES[:2], CLASSES[:2]), "2 boxes, the reference", id="one less"
        ),
        pytest.param(
            detections([*BOXES, BOXES[2]], [*SCORES, 0.3], [*CLASSES, 2]),
            "4 boxes, the reference has 3",
            id="one twice",
        ),
        pytest.param(
            detections(class_ids=[0, 2, 2]), "rank 1: no dog within 0.005", id="another class"
        ),
        pytest.param(
            detections(class_ids=[1, 0, 2]), "rank 0: no cat within 0.005", id="classes permuted"
        ),
        pytest.param(
            detections(scores=[0.9, 0.606, 0.3]), "rank 1: no dog within 0.005", id="a score"
        ),
        pytest.param(detections(boxes=moved(2, 1.25)), "differs by 1.250 px", id="a side"),
        pytest.param(
            detections(boxes=moved(2, -1)), "differs by 1.000 px (bound 1)", id="exactly the bound"
        ),
        pytest.param(
            detections(boxes=[BOXES[1], BOXES[0], BOXES[2]]),
            "differs by 50.000 px",
            id="boxes of two classes swapped",
        ),
    ],
)
def test_a_difference_fails_with_a_sentence_that_names_it(native, sentence) -> None:
    assert sentence in str(compare(native).problem)


@pytest.mark.parametrize("side", range(4))
def test_each_of_the_four_sides_counts(side) -> None:
    boxes = np.array(BOXES, np.float32)
    boxes[1, side] += 3
    compared = compare(detections(boxes=boxes))
    assert "differs by 3.000 px" in str(compared.problem)
    assert compared.differences["side_px"] == 3  # a side's failure says which bound would do


def test_a_score_at_exactly_the_bound_fails() -> None:
    quarter = RankedCriteria(score=0.25, side_px=1.0)
    native, reference = detections(scores=[0.75, 0.5, 0.25]), detections(scores=[0.5, 0.5, 0.25])
    assert quarter.compare(native, LABELS, reference, LABELS).problem is not None


def test_a_permuted_label_list_fails_though_every_class_id_is_right() -> None:
    compared = compare(detections(), labels=["dog", "cat", "bird"])
    assert "rank 0: no cat" in str(compared.problem)


def test_class_ids_may_differ_where_the_labels_are_the_same() -> None:
    assert compare(detections(class_ids=[2, 1, 0]), labels=LABELS[::-1]).problem is None


NEAR = {"boxes": [[0, 0, 10, 10], [50, 50, 60, 60]], "class_ids": [0, 0]}


@pytest.mark.parametrize(
    ("native", "reference", "agrees"),
    [
        pytest.param(
            detections(NEAR["boxes"][::-1], [0.602, 0.6], [0, 0]),
            detections(NEAR["boxes"], [0.602, 0.6], [0, 0]),
            True,
            id="near-equal scores of one class swapped",
        ),
        pytest.param(
            detections(NEAR["boxes"][::-1], [0.602, 0.6], [1, 0]),
            detections(NEAR["boxes"], [0.602, 0.6], [0, 1]),
            True,
            id="near-equal scores of two classes swapped",
        ),
        pytest.param(
            detections(NEAR["boxes"][::-1], [0.61, 0.6], [0, 0]),
            detections(NEAR["boxes"], [0.61, 0.6], [0, 0]),
            False,
            id="scores further apart swapped",
        ),
        pytest.param(
            detections([NEAR["boxes"][0]] * 2, [0.602, 0.6], [0, 0]),
            detections(NEAR["boxes"], [0.602, 0.6], [0, 0]),
            False,
            id="one box twice in place of two",
        ),
        pytest.param(
            detections(NEAR["boxes"], [0.602, 0.6], [0, 0]),
            detections([NEAR["boxes"][0]] * 2, [0.602, 0.6], [0, 0]),
            False,
            id="two boxes in place of one twice: each needs a partner of its own",
        ),
    ],
)
def test_only_near_equal_scores_may_swap_their_ranks(native, reference, agrees) -> None:
    assert (compare(native, reference).problem is None) == agrees


def test_the_bounds_are_named_as_the_differences_are() -> None:
    assert CRITERIA.bounds() == {"score": 0.005, "side_px": 1.0}
    assert compare(detections()).differences.keys() == CRITERIA.bounds().keys()


def two(scores: list[float], by: float = 0, second: int = 0) -> Detections:
    """The first boxes, cats, of these scores; the second moved or of another class."""
    count = len(scores)
    return detections(moved(1, by)[:count], scores, [0, second][:count])


@pytest.mark.parametrize(
    ("native", "reference", "left"),
    [
        pytest.param(two([0.9, 0.5]), two([0.9, 0.5]), (2, 2, 0), id="none near the threshold"),
        pytest.param(two([0.9, 0.251]), two([0.9, 0.248]), (1, 1, 1), id="ours above"),
        pytest.param(two([0.9, 0.249]), two([0.9, 0.25]), (1, 1, 1), id="ours below"),
        pytest.param(two([0.9, 0.252]), two([0.9, 0.246]), (2, 1, 0), id="scores too far apart"),
        pytest.param(two([0.9, 0.251]), two([0.9]), (2, 1, 0), id="no partner at all"),
        pytest.param(two([0.9, 0.251]), two([0.9, 0.251]), (2, 2, 0), id="both above"),
        pytest.param(two([0.9, 0.251], by=2), two([0.9, 0.248]), (2, 1, 0), id="another box"),
        pytest.param(two([0.9, 0.251], second=1), two([0.9, 0.248]), (2, 1, 0), id="another class"),
    ],
)
def test_a_detection_is_divided_only_if_its_partner_lies_just_beyond_the_threshold(
    native, reference, left
) -> None:
    ours, theirs, count = without_divided(CRITERIA, native, LABELS, reference, LABELS, 0.25)
    assert (len(ours), len(theirs), count) == left


def test_matched_criteria_divide_too() -> None:
    criteria = MatchedCriteria(iou=0.5, score=0.05)
    native, reference = two([0.9, 0.52], by=4), two([0.9, 0.48])
    ours, theirs, count = without_divided(criteria, native, LABELS, reference, LABELS, 0.5)
    assert (len(ours), len(theirs), count) == (1, 1, 1)
