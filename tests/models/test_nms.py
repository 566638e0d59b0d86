"""`suppress`: the plain definition of class-aware greedy NMS, and OpenCV's own, agree with it."""

from fractions import Fraction

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.letterbox import Letterbox
from models.nms import detections_of, suppress

# Whole coordinates in a small square: equal scores, equal boxes, empty boxes and overlaps of
# exactly the threshold all turn up.
INTEGER_BOX = st.tuples(*[st.integers(0, 40)] * 4).map(
    lambda sides: (*np.minimum(sides[:2], sides[2:]), *np.maximum(sides[:2], sides[2:]))
)
CANDIDATES = st.lists(st.tuples(INTEGER_BOX, st.integers(0, 6), st.integers(0, 2)), max_size=40)


def arrays(boxes, scores, class_ids) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(scores, np.float32),
        np.array(class_ids, np.int32),
    )


def plain(boxes, scores, class_ids, iou: Fraction, limit: int) -> list[int]:
    """The definition, pair by pair, in exact arithmetic on whole coordinates."""
    kept: list[int] = []
    for candidate in sorted(range(len(boxes)), key=lambda index: (-scores[index], index)):
        if len(kept) == limit:
            break
        if not any(
            class_ids[other] == class_ids[candidate]
            and overlap(boxes[other], boxes[candidate]) > iou
            for other in kept
        ):
            kept.append(candidate)
    return kept


def overlap(one, other) -> Fraction:
    """IoU; two empty boxes overlap by nothing."""
    one, other = [int(side) for side in one], [int(side) for side in other]
    width = max(0, min(one[2], other[2]) - max(one[0], other[0]))
    height = max(0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    union = sum(areas) - width * height
    return Fraction(width * height, union) if union else Fraction(0)


@given(
    candidates=CANDIDATES,
    iou=st.sampled_from(["0.3", "0.5", "0.65", "0.7"]),
    limit=st.sampled_from([1, 3, 300]),
)
@settings(deadline=None, max_examples=300)
def test_the_kept_boxes_are_those_of_the_plain_definition(candidates, iou, limit) -> None:
    boxes, scores, class_ids = (
        arrays(*zip(*candidates, strict=True)) if candidates else arrays([], [], [])
    )
    kept = suppress(boxes, scores, class_ids, iou=float(iou), limit=limit)
    assert kept.dtype == np.int64
    assert kept.tolist() == plain(boxes, scores, class_ids, Fraction(iou), limit)


@pytest.mark.parametrize("seed", range(20))
def test_the_kept_boxes_are_those_of_opencv(seed) -> None:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 200, (200, 2))
    xywh = np.hstack([corners, rng.uniform(50, 200, (200, 2))]).astype(np.float32)
    boxes = np.hstack([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]])
    scores = rng.permutation(np.linspace(0.1, 0.9, 200)).astype(np.float32)
    class_ids = rng.integers(0, 3, 200).astype(np.int32)
    opencv = cv2.dnn.NMSBoxesBatched(xywh.tolist(), scores.tolist(), class_ids.tolist(), 0.0, 0.65)
    kept = suppress(boxes, scores, class_ids, iou=0.65, limit=300)
    assert 0 < len(kept) < 200
    assert kept.tolist() == sorted(opencv, key=lambda index: -scores[index])


# the smaller box lies inside the larger: IoU is the quotient of their areas
@pytest.mark.parametrize(
    ("areas", "iou", "kept"),
    [
        pytest.param((100, 50), 0.5, [0, 1], id="exactly a half is kept"),
        pytest.param((100, 51), 0.5, [0], id="above a half is dropped"),
        pytest.param((100, 65), 0.65, [0, 1], id="exactly 0.65 is kept"),
        pytest.param((380, 247), 0.65, [0, 1], id="exactly 0.65 is kept where products round"),
        pytest.param((380, 248), 0.65, [0], id="above 0.65 is dropped"),
        pytest.param((2_000_000, 1_300_001), 0.65, [0], id="a hair above 0.65 is dropped"),
        pytest.param((180, 126), 0.7, [0, 1], id="exactly 0.7 is kept where products round"),
        pytest.param((180, 127), 0.7, [0], id="above 0.7 is dropped"),
        pytest.param((100, 100), 0.7, [0], id="the same box is dropped"),
        pytest.param((100, 100), 1.0, [0, 1], id="nothing is above 1"),
    ],
)
def test_an_overlap_is_dropped_only_above_the_threshold(areas, iou, kept) -> None:
    boxes = [[0, 0, area, 1] for area in areas]
    found = suppress(*arrays(boxes, [0.9, 0.8], [0, 0]), iou=iou, limit=300)
    assert found.tolist() == kept


@pytest.mark.parametrize(
    ("boxes", "scores", "class_ids", "limit", "kept"),
    [
        pytest.param([], [], [], 300, [], id="no box"),
        pytest.param(
            [[0, 0, 9, 9]] * 3, [0.5, 0.9, 0.7], [0, 0, 0], 300, [1], id="the best one stays"
        ),
        pytest.param(
            [[0, 0, 9, 9]] * 3, [0.5, 0.9, 0.7], [0, 1, 2], 300, [1, 2, 0], id="other classes stay"
        ),
        pytest.param(
            [[0, 0, 9, 9]] * 2, [0.5, 0.5], [0, 0], 300, [0], id="of equal scores the first stays"
        ),
        pytest.param(
            [[0, 0, 9, 9], [20, 0, 29, 9], [40, 0, 49, 9]],
            [0.5, 0.5, 0.6],
            [0, 0, 0],
            300,
            [2, 0, 1],
            id="equal scores keep their order",
        ),
        pytest.param(
            [[0, 0, 9, 9], [20, 0, 29, 9], [40, 0, 49, 9]],
            [0.5, 0.7, 0.6],
            [0, 1, 0],
            2,
            [1, 2],
            id="the limit counts all classes and takes the best",
        ),
        pytest.param(
            [[5, 5, 5, 5]] * 2 + [[0, 0, 9, 0], [0, 0, 9, 9]],
            [0.9, 0.8, 0.7, 0.6],
            [0, 0, 0, 0],
            300,
            [0, 1, 2, 3],
            id="empty boxes overlap nothing",
        ),
        pytest.param(
            # 1 is dropped by 0; 2 overlaps 1 alone
            [[0, 0, 100, 10], [10, 0, 110, 10], [20, 0, 120, 10]],
            [0.9, 0.8, 0.7],
            [0, 0, 0],
            300,
            [0, 2],
            id="a dropped box drops nothing",
        ),
    ],
)
def test_which_boxes_are_kept(boxes, scores, class_ids, limit, kept) -> None:
    found = suppress(*arrays(boxes, scores, class_ids), iou=0.7, limit=limit)
    assert found.tolist() == kept


def test_suppression_leaves_its_inputs_alone() -> None:
    inputs = arrays([[0, 0, 9, 9]] * 3, [0.5, 0.9, 0.7], [0, 0, 1])
    copies = [array.copy() for array in inputs]
    suppress(*inputs, iou=0.7, limit=300)
    for before, after in zip(copies, inputs, strict=True):
        np.testing.assert_array_equal(before, after)


def test_the_chosen_anchors_become_detections_on_the_source_image() -> None:
    outputs = {
        "boxes": np.array(
            [[[0, 0, 50, 50], [0, 0, 51, 50], [60, 20, 80, 200], [1, 1, 2, 2]]], np.float32
        ),
        "scores": np.array([[0.5, 0.75, 0.875, 0.125]], np.float32),
        "class_ids": np.array([[3, 3, 7, 0]], np.int32),
    }
    placed = Letterbox.top_left((200, 100), (100, 100))  # scale 0.5
    found = detections_of(outputs, outputs["scores"][0] > 0.2, placed, iou=0.7, limit=300)
    np.testing.assert_array_equal(found.boxes, [[100, 40, 100, 200], [0, 0, 100, 100]])
    np.testing.assert_array_equal(found.scores, np.float32([0.875, 0.75]))
    np.testing.assert_array_equal(found.class_ids, [7, 3])
    assert (found.height, found.width) == (200, 100)
