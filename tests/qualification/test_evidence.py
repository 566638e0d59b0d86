"""Evidence: a response counts only when everything in it is right, and is compared bit for bit."""

import json
import math
import re
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from deployments import wire
from models.detections import Detections
from qualification.evidence import InvalidResponse, Seen, canonical, difference, parse_response

BOX = {"x_min": 0.1, "y_min": 0.2, "x_max": 0.3, "y_max": 0.4, "confidence": 0.5, "class_id": 7}


def item(index: int = 0, **labels: Any) -> dict[str, Any]:
    return {"index": index, "bounding_boxes": labels}


def body(document: Any) -> bytes:
    return json.dumps(document).encode()  # writes NaN, too


def with_box(**changes: Any) -> dict[str, Any]:
    """A response with one box, some of its values changed; `...` takes one out."""
    box = {key: value for key, value in (BOX | changes).items() if value is not ...}
    return {"data": [item(cat=[box])]}


def f32(value: float) -> float:
    return float(np.float32(value))


def test_a_good_response_is_read_as_float32_in_canonical_order() -> None:
    document = {"data": [item(dog=[BOX], cat=[BOX | {"x_min": 0.2}, BOX])], "model": "m"}
    numbers = [f32(value) for value in (0.1, 0.2, 0.3, 0.4, 0.5)]
    assert parse_response(body(document)) == [
        [
            ("cat", 7, *numbers),
            ("cat", 7, f32(0.2), *numbers[1:]),
            ("dog", 7, *numbers),
        ]
    ]


def test_an_image_without_detections_is_a_good_response() -> None:
    assert parse_response(body({"data": [item()]})) == [[]]
    assert parse_response(body({"data": [item(cat=[])]})) == [[]]


def test_each_image_of_a_request_has_its_own_boxes() -> None:
    document = {"data": [item(0), item(1, cat=[BOX])]}
    first, second = parse_response(body(document), images=2)
    assert (len(first), len(second)) == (0, 1)


def test_boxes_at_the_very_edges_are_inside() -> None:
    edges = {"x_min": 0, "y_min": 0, "x_max": 1, "y_max": 1, "confidence": 1}
    assert parse_response(body(with_box(**edges)))[0][0][2:] == (0, 0, 1, 1, 1)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        pytest.param({"data": []}, "list of 1 items", id="no items"),
        pytest.param({"data": "oops"}, "list of 1 items", id="a text"),
        pytest.param({"data": {"0": item()}}, "list of 1 items", id="an object"),
        pytest.param({"data": None}, "list of 1 items", id="null"),
        pytest.param({"data": [item(0), item(1)]}, "list of 1 items", id="one too many"),
        pytest.param({"data": [{}]}, "has not the index 0", id="an empty item"),
        pytest.param({"data": ["oops"]}, "has not the index 0", id="a text for an item"),
        pytest.param({"data": [item(1)]}, "has not the index 0", id="another index"),
        pytest.param({"data": [item("0")]}, "has not the index 0", id="an index as text"),
        pytest.param({"data": [item(False)]}, "has not the index 0", id="false for an index"),
        pytest.param({"data": [{"index": 0}]}, "no `bounding_boxes`", id="no boxes"),
        pytest.param(
            {"data": [{"index": 0, "bounding_boxes": []}]}, "no `bounding_boxes`", id="a list"
        ),
        pytest.param({"data": [item(cat=BOX)]}, "a list of boxes", id="a label without a list"),
        pytest.param({"data": [item(cat=None)]}, "a list of boxes", id="null for a list"),
        pytest.param({"data": [item(cat=["oops"])]}, "of cat is not complete", id="a text box"),
        pytest.param({"data": [item(cat=[{}])]}, "of cat is not complete", id="an empty box"),
        pytest.param({}, "not a JSON object with `data`", id="no data"),
        pytest.param([], "not a JSON object with `data`", id="a list at the top"),
        pytest.param("data", "not a JSON object with `data`", id="a text at the top"),
        pytest.param(None, "not a JSON object with `data`", id="null at the top"),
        *(
            pytest.param(
                with_box(**{key: ...}), f"not complete: KeyError\\('{key}'", id=f"no {key}"
            )
            for key in BOX
        ),
        pytest.param(with_box(x_max=1.01), "is not inside", id="right of the image"),
        pytest.param(with_box(y_min=-0.01), "is not inside", id="above the image"),
        pytest.param(with_box(x_min=0.31), "is not inside", id="left is right of right"),
        pytest.param(with_box(y_max=0.19), "is not inside", id="bottom is above top"),
        pytest.param(with_box(x_max=64), "is not inside", id="pixels"),
        pytest.param(with_box(confidence=1.5), "is not inside", id="confidence above 1"),
        pytest.param(with_box(confidence=-0.5), "is not inside", id="confidence below 0"),
        pytest.param(with_box(x_min=math.nan), "not a JSON object", id="NaN"),
        pytest.param(with_box(x_min=math.inf), "not a JSON object", id="infinity"),
        pytest.param(with_box(x_max=1e300), "is not inside", id="beyond float32"),
        pytest.param(
            with_box(x_min=None), "of cat has a value of another type", id="null for a number"
        ),
        pytest.param(
            with_box(x_min="0.1"), "of cat has a value of another type", id="a number as text"
        ),
        pytest.param(
            with_box(x_min=False), "of cat has a value of another type", id="false for a number"
        ),
        pytest.param(
            with_box(x_min=[0.1]), "of cat has a value of another type", id="a list for a number"
        ),
        pytest.param(
            with_box(class_id=None), "of cat has a value of another type", id="null for a class"
        ),
        pytest.param(
            with_box(class_id="7"), "of cat has a value of another type", id="a class as text"
        ),
        pytest.param(
            with_box(class_id=7.5), "of cat has a value of another type", id="half a class"
        ),
        pytest.param(
            with_box(class_id=[]), "of cat has a value of another type", id="a list for a class"
        ),
        pytest.param(
            with_box(class_id=True), "of cat has a value of another type", id="true for a class"
        ),
    ],
)
def test_a_malformed_response_is_refused(document: Any, sentence: str) -> None:
    with pytest.raises(InvalidResponse, match=sentence):
        parse_response(body(document))


@pytest.mark.parametrize("raw", [b"", b"oops", b"<html>", b'{"data": [', b"\xff\xfe", b"{}{}"])
def test_a_body_that_is_not_json_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidResponse, match="not a JSON object with `data`"):
        parse_response(raw)


@pytest.mark.parametrize(("images", "items"), [(2, 1), (2, 3), (1, 0)])
def test_another_count_of_items_than_of_images_is_refused(images: int, items: int) -> None:
    document = {"data": [item(index) for index in range(items)]}
    with pytest.raises(InvalidResponse, match=f"list of {images} items"):
        parse_response(body(document), images)


def test_items_in_another_order_are_refused() -> None:
    with pytest.raises(InvalidResponse, match=r"data\[0\] has not the index 0"):
        parse_response(body({"data": [item(1), item(0)]}), images=2)


FLOATS = st.floats(0, 1, width=32)


@st.composite
def seen(draw: st.DrawFn) -> Seen:
    """Any detections, all float32 bit patterns between 0 and the image's size."""
    count = draw(st.integers(0, 5))
    height, width = draw(st.integers(1, 5000)), draw(st.integers(1, 5000))
    corners = draw(arrays.arrays(np.float32, (count, 2, 2), elements=FLOATS))
    size = np.array([width, height], np.float32)
    boxes = (np.sort(corners, axis=1) * size).reshape(-1, 4)
    scores = np.sort(draw(arrays.arrays(np.float32, count, elements=FLOATS)))[::-1].copy()
    class_ids = draw(arrays.arrays(np.int32, count, elements=st.integers(0, 90)))
    labels = [f"label {index}" for index in class_ids]
    return Seen("a.jpg", Detections(boxes, scores, class_ids, height, width), labels)


@given(seen())
@settings(deadline=None, max_examples=150)
def test_saved_detections_come_back_with_every_bit(one: Seen) -> None:
    again = Seen.from_json(json.loads(orjson.dumps(one.to_json())))
    assert (again.image, again.labels) == (one.image, one.labels)
    before, after = one.detections, again.detections
    assert (after.height, after.width) == (before.height, before.width)
    for name in ("boxes", "scores", "class_ids"):
        assert getattr(after, name).tobytes() == getattr(before, name).tobytes()


@given(seen())
@settings(deadline=None, max_examples=150)
def test_a_response_of_our_own_wire_is_identical_to_its_native_result(one: Seen) -> None:
    answer = wire.response("m", [(one.detections, one.labels)], 0.1)
    (boxes,) = parse_response(answer)
    assert difference(one.wire_boxes(), boxes) is None


NATIVE = Seen(
    "a.jpg",
    Detections(
        np.array([[0, 0, 10, 10], [20, 20, 60, 60]], np.float32),
        np.array([0.9, 0.6], np.float32),
        np.array([0, 1], np.int32),
        height=100,
        width=300,
    ),
    ["cat", "dog"],
).wire_boxes()


def altered(place: int, value: Any) -> list[Any]:
    """NATIVE with one value of its second box replaced."""
    box = list(NATIVE[1])
    box[place] = value
    return canonical([NATIVE[0], tuple(box)])


def next_up(value: float) -> float:
    return float(np.nextafter(np.float32(value), np.float32(2)))


def test_the_same_boxes_in_another_order_are_no_difference() -> None:
    assert difference(NATIVE, canonical(NATIVE[::-1])) is None
    assert difference([], []) is None


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        pytest.param(NATIVE[:1], "1 boxes, native has 2", id="one box dropped"),
        pytest.param([], "0 boxes, native has 2", id="all boxes dropped"),
        pytest.param([*NATIVE, NATIVE[1]], "3 boxes, native has 2", id="one box twice"),
        pytest.param(altered(0, "cat"), "native has .*'dog'.*, the response .*'cat'", id="label"),
        pytest.param(altered(1, 2), "native has", id="class id"),
        *(
            pytest.param(altered(place, next_up(NATIVE[1][place])), "native has", id=f"bit {place}")
            for place in range(2, 7)
        ),
    ],
)
def test_the_smallest_difference_is_seen(found: list[Any], sentence: str) -> None:
    assert re.search(sentence, str(difference(NATIVE, found)))
