"""Our own average precision against pycocotools, by hand, and the statistics made from it."""

import numpy as np
import pytest

from models.criteria import RankedCriteria
from models.detections import Detections
from qualification import statistics
from qualification.average_precision import matches
from qualification.datasets.coco import Dataset
from qualification.evidence import Seen
from qualification.mean_ap import mean_ap
from tests.qualification.test_mean_ap import annotation, dataset, seen

NAMES = ["a", "b", "c", "d"]
CATEGORIES = [{"id": number + 1, "name": name} for number, name in enumerate(NAMES)]


def random_case(seed: int) -> tuple[Dataset, list[Seen]]:
    """Objects, and detections near them, doubled, missing and made up; half of the cases with
    scores of one decimal, so that many tie."""
    draw = np.random.default_rng(seed)
    images = int(draw.integers(1, 8))
    objects, found = [], []
    for image in range(1, images + 1):
        corners = draw.uniform(0, 60, (draw.integers(0, 6), 2))
        boxes = np.hstack([corners, draw.uniform(4, 40, corners.shape)])
        for box in boxes:
            category = int(draw.integers(1, 5))
            objects.append(annotation(len(objects) + 1, image, category, box.tolist()))
        near = np.repeat(boxes, draw.integers(0, 3, len(boxes)), axis=0)
        near = near + draw.normal(0, 3, near.shape)
        near[:, 2:] = near[:, :2] + np.maximum(near[:, 2:], 1)
        low = draw.uniform(0, 60, (draw.integers(0, 4), 2))
        made = np.hstack([low, low + draw.uniform(3, 40, low.shape)])
        every = np.vstack([near, made]).astype(np.float32)
        scores = np.round(draw.uniform(0, 1, len(every)), 1 if seed % 2 else 4)
        order = np.argsort(-scores, kind="stable")
        labels = draw.integers(0, 4, len(every))[order]
        one = Detections(
            every[order],
            scores[order].astype(np.float32),
            labels.astype(np.int32),
            height=100,
            width=100,
        )
        found.append(Seen(f"{image}.jpg", one, [NAMES[label] for label in labels]))
    made = dataset(objects, images, CATEGORIES)
    if seed % 3 == 0:  # as a dataset whose images are taken in turn from its categories
        made.images.reverse()
        found.reverse()
    return made, found


def test_our_average_precision_is_pycocotools_on_200_random_cases() -> None:
    cases = [random_case(seed) for seed in range(200)]
    judged = 0
    for made, found in cases:
        if made.ground_truth["annotations"]:
            theirs, ours = mean_ap(made, found), matches(made, found)
            assert ours.map == pytest.approx(theirs.map, abs=1e-12)
            assert ours.map50 == pytest.approx(theirs.map50, abs=1e-12)
            judged += theirs.map > 0
    assert judged > 150


BOX = [10.0, 10.0, 20.0, 20.0]
AT = [10.0, 10.0, 30.0, 30.0]  # the same, xyxy
ONE = annotation(1, 1, 3, BOX)
AWAY = [60.0, 60.0, 80.0, 80.0]


@pytest.mark.parametrize(
    ("objects", "found", "expected"),
    [
        ([ONE], [], 0.0),
        ([], [seen("1.jpg", ("cat", AT, 0.9))], 0.0),
        # half of the recalls (0 to .50, 51 of 101) at precision 1
        (
            [annotation(1, 1, 3, BOX), annotation(2, 2, 3, BOX)],
            [seen("1.jpg", ("cat", AT, 0.9))],
            51 / 101,
        ),
        # a class without objects counts for nothing
        ([ONE], [seen("1.jpg", ("cat", AT, 0.9), ("dog", AT, 0.8))], 1.0),
        # one of two equal scores is wrong: the order in which they came decides, precision 1 or 1/2
        ([ONE], [seen("1.jpg", ("cat", AT, 0.5), ("cat", AWAY, 0.5))], 1.0),
        ([ONE], [seen("1.jpg", ("cat", AWAY, 0.5), ("cat", AT, 0.5))], 0.5),
        # the second detection of one object is wrong, and stands behind all right ones
        ([ONE], [seen("1.jpg", ("cat", AT, 0.9), ("cat", AT, 0.8))], 1.0),
    ],
    ids=[
        "no detections",
        "no ground truth",
        "one of two",
        "an absent class",
        "tie, right first",
        "tie, wrong first",
        "doubled",
    ],
)
def test_average_precision_by_hand(objects, found, expected) -> None:
    assert matches(dataset(objects), found).map50 == pytest.approx(expected)


def test_a_crowd_is_left_out_where_coco_ignores_what_lies_in_it() -> None:
    """COCO takes the detection in the crowd for neither right nor wrong; here it is wrong, and
    comes first."""
    made = dataset([annotation(1, 1, 3, BOX), annotation(2, 2, 3, BOX, iscrowd=1)])
    found = [seen("2.jpg", ("cat", AT, 0.9)), seen("1.jpg", ("cat", AT, 0.8))]
    figures = mean_ap(made, found)
    assert (figures.map50, figures.reference_system_map50) == (pytest.approx(1), pytest.approx(0.5))


def test_100_detections_count_an_image_and_not_a_class() -> None:
    made = dataset([ONE])
    others = [("dog", AWAY, 0.9)] * 100
    figures = mean_ap(made, [seen("1.jpg", *others, ("cat", AT, 0.5))])
    assert (figures.map, figures.reference_system_map) == (pytest.approx(1), 0)


def test_weighting_an_image_twice_is_having_it_twice() -> None:
    made, found = random_case(22)
    weighted = matches(made, found).mean(np.array([[2.0] + [1.0] * (len(made.images) - 1)]))
    objects = made.ground_truth["annotations"]
    last = len(made.images) + 1
    again = [
        annotation(1000 + each["id"], last, each["category_id"], each["bbox"])
        for each in objects
        if each["image_id"] == 1
    ]
    doubled = dataset([*objects, *again], last, CATEGORIES)
    copy = Seen(f"{last}.jpg", found[0].detections, found[0].labels)
    # beside the first in the order of equal scores, as a drawn image is
    expected = matches(doubled, [*found, copy]).mean()
    assert np.allclose(weighted, expected, atol=0.02)
    assert not np.allclose(weighted, matches(made, found).mean(), atol=1e-3)


def test_the_interval_of_a_map_difference_holds_zero_for_equals_and_not_for_a_real_drop() -> None:
    objects = [annotation(number, number, 3, BOX) for number in range(1, 41)]
    made = dataset(objects, 40)
    right = [seen(f"{number}.jpg", ("cat", AT, 0.9)) for number in range(1, 41)]
    fewer = right[:30] + [seen(f"{number}.jpg") for number in range(31, 41)]
    whole, less = (matches(made, side) for side in (right, fewer))
    same = statistics.between(whole, whole)
    assert (same.map.low, same.map.high) == (0, 0)
    drop = statistics.between(less, whole).map
    assert drop.low < drop.estimate < drop.high < 0
    assert drop == statistics.between(less, whole).map  # the same evidence, the same figures


def test_a_median_ratio_comes_with_an_interval_that_noise_widens_and_slow_images_do_not() -> None:
    draw = np.random.default_rng(5)
    images = draw.uniform(20, 200, 50)  # what an image takes differs far more than what is sought
    exact = statistics.median_ratio(images.tolist(), (images * 1.3).tolist())
    assert (exact.low, exact.high) == (pytest.approx(1.3), pytest.approx(1.3))
    calm, wild = (images * draw.normal(1.3, spread, 50) for spread in (0.02, 0.3))
    near, far = (statistics.median_ratio(images.tolist(), each.tolist()) for each in (calm, wild))
    assert 1.25 < near.low < 1.3 < near.high < 1.35
    assert far.high - far.low > 3 * (near.high - near.low)


def test_images_outside_the_bounds_come_first_and_scores_near_the_threshold_are_counted() -> None:
    def one(name: str, left: float, score: float) -> Seen:
        return seen(name, ("cat", [left, 10, 30, 30], score))

    native = [one("same.jpg", 10, 0.9), one("moved.jpg", 10.5, 0.252), one("far.jpg", 14, 0.9)]
    reference = [one("same.jpg", 10, 0.9), one("moved.jpg", 10, 0.25), one("far.jpg", 10, 0.9)]
    found = statistics.agreement(
        RankedCriteria(score=0.005, side_px=1.0), native, ["cat"], reference, ["cat"], 0.25
    )
    assert [each.image for each in found.worst(frozenset())] == ["far.jpg", "moved.jpg", "same.jpg"]
    assert (found.boxes, found.near_threshold) == (3, 1)
    assert found.images[1].differences == pytest.approx({"score": 0.002, "side_px": 0.5}, abs=1e-6)
