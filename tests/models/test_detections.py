"""`Detections` takes nothing but consistent arrays, and normalises to fractions of the image."""

import numpy as np
import pytest

from models.detections import Detections

GOOD = {
    "boxes": np.array([[0, 0, 50, 25], [10, 5, 200, 100]], np.float32),
    "scores": np.array([0.75, 0.5], np.float32),
    "class_ids": np.array([3, 0], np.int32),
    "height": 100,
    "width": 200,
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"boxes": GOOD["boxes"].astype(float)}, "boxes must be float32 .2, 4., not float64"),
        ({"boxes": GOOD["boxes"][:1]}, "boxes must be float32 .2, 4., not float32 .1, 4."),
        ({"boxes": GOOD["boxes"].reshape(4, 2)}, "boxes must be float32 .2, 4."),
        ({"scores": GOOD["scores"].astype(np.float16)}, "scores must be float32"),
        ({"scores": GOOD["scores"][:, None]}, "scores must be float32 .2., not float32 .2, 1."),
        ({"class_ids": GOOD["class_ids"].astype(np.int64)}, "class_ids must be int32 .2., not"),
        ({"class_ids": np.array([1], np.int32)}, "class_ids must be int32 .2., not int32 .1."),
        ({"scores": GOOD["scores"][::-1].copy()}, "sorted by falling score"),
        ({"height": 0}, "at least 1x1"),
        ({"width": 0}, "at least 1x1"),
    ],
)
def test_an_inconsistent_array_is_refused_by_name(change, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        Detections(**(GOOD | change))


def test_equal_scores_are_sorted() -> None:
    assert len(Detections(**(GOOD | {"scores": np.array([0.5, 0.5], np.float32)}))) == 2


def test_fractions_are_float32_of_width_and_height() -> None:
    fractions = Detections(**GOOD).boxes_norm()
    assert fractions.dtype == np.float32
    np.testing.assert_array_equal(fractions, np.float32([[0, 0, 0.25, 0.25], [0.05, 0.05, 1, 1]]))


def test_no_box_is_a_detection_result_too() -> None:
    empty = Detections(
        np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32), 1, 1
    )
    assert len(empty) == 0
    assert empty.boxes_norm().shape == (0, 4)
