"""`deployments.wire`: JSON into images or one refusal, detections into JSON and back."""

import base64
import gc
import io
import sys
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from deployments import wire
from deployments.config import IngressArgs
from models.detections import Detections
from models.errors import (
    BodyTooLarge,
    DamagedImage,
    DetserveError,
    ImageTooLarge,
    InvalidRequest,
    MalformedRequest,
    Overloaded,
    RequestError,
    UnsupportedImage,
)

LIMITS = IngressArgs(max_images=3, max_pixels=100)


def encoded(kind: str, height: int = 4, width: int = 5) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), "orange").save(stream, kind)
    return stream.getvalue()


PNG, JPEG = encoded("PNG"), encoded("JPEG")


def url(image: bytes, head: str = "data:image/png;base64") -> str:
    return f"{head},{base64.b64encode(image).decode()}"


def item(image: bytes = PNG) -> dict[str, Any]:
    return {"type": "image_url", "url": url(image)}


def parse(request: Any) -> wire.InferRequest:
    return wire.parse_request(orjson.dumps(request), LIMITS)


# --- Accepted -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "model", "images"),
    [
        ({"model": "m", "input": [item()]}, "m", [PNG]),
        ({"input": [item()]}, None, [PNG]),
        ({"model": None, "input": [item()]}, None, [PNG]),
        ({"model": "", "input": [item()]}, "", [PNG]),
        ({"input": [item(PNG), item(JPEG), item(PNG)]}, None, [PNG, JPEG, PNG]),
        ({"input": [item()], "threshold": 2, "merge_labels": [{}], "model_": 5}, None, [PNG]),
        ({"input": [item() | {"detail": "high", "index": -1}]}, None, [PNG]),
        ({"input": [{"type": "image_url", "url": url(PNG, "data:;base64")}]}, None, [PNG]),
        ({"input": [{"type": "image_url", "url": url(PNG, "data:img/png;base64")}]}, None, [PNG]),
        ({"input": [{"type": "image_url", "url": url(JPEG)}]}, None, [JPEG]),
        ({"input": [{"type": "image_url", "url": url(PNG, "DATA:X;BASE64")}]}, None, [PNG]),
        ({"input": [{"type": "image_url", "url": url(PNG, "data:a;b=c;base64")}]}, None, [PNG]),
        ({"input": [item(PNG[:40])]}, None, [PNG[:40]]),
    ],
    ids=[
        "model and image",
        "no model",
        "model is null",
        "model is empty",
        "three images in order",
        "unknown keys",
        "unknown keys of an item",
        "no media type",
        "img/png",
        "JPEG labelled image/png",
        "upper case",
        "media type with a parameter",
        "only a header: decoding is not done here",
    ],
)
def test_request_is_taken(request_: Any, model: str | None, images: list[bytes]) -> None:
    assert parse(request_) == wire.InferRequest(model, images)


def test_size_is_that_of_the_encoded_images() -> None:
    assert wire.InferRequest(None, [bytes(1 << 20), bytes(1 << 19)]).images_size_mb == 1.5


# --- Refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'input': []}",
        b'{"input": [],}',
        b'{"input": NaN}',
        b'{"input": []} x',
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        rb'"\ud800"',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        wire.parse_request(body, LIMITS)


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ([], InvalidRequest, "object"),
        (None, InvalidRequest, "object"),
        ({}, InvalidRequest, "`input`"),
        ({"input": []}, InvalidRequest, "`input`"),
        ({"input": {}}, InvalidRequest, "`input`"),
        ({"input": [item()], "model": 1}, InvalidRequest, "`model`"),
        ({"input": [item()] * 4}, InvalidRequest, "4 images; this server takes 3"),
        ({"input": [None]}, InvalidRequest, "input[0]: each item"),
        ({"input": [item(), []]}, InvalidRequest, "input[1]: each item"),
        ({"input": [item() | {"type": "text"}]}, InvalidRequest, "input[0]: each item"),
        ({"input": [item() | {"type": None}]}, InvalidRequest, "input[0]: each item"),
        ({"input": [{"type": "image_url"}]}, InvalidRequest, "input[0]: `url` must be"),
        ({"input": [item() | {"url": {"url": "data:"}}]}, InvalidRequest, "`url` must be"),
        ({"input": [item() | {"url": "http://x/a.png"}]}, InvalidRequest, "only data: URLs"),
        ({"input": [item() | {"url": "file:///a.png"}]}, InvalidRequest, "only data: URLs"),
        ({"input": [item() | {"url": " data:,"}]}, InvalidRequest, "only data: URLs"),
        ({"input": [item() | {"url": "data:image/png"}]}, InvalidRequest, "must read"),
        ({"input": [item() | {"url": "data:image/png,iVBO"}]}, InvalidRequest, "must read"),
        ({"input": [item() | {"url": url(PNG) + "\n"}]}, InvalidRequest, "not base64"),
        ({"input": [item() | {"url": url(PNG) + "é"}]}, InvalidRequest, "not base64"),
        ({"input": [item() | {"url": url(PNG)[:-1]}]}, InvalidRequest, "not base64"),
        ({"input": [item(b"")]}, UnsupportedImage, "JPEG and PNG"),
        ({"input": [item(b"GIF89a")]}, UnsupportedImage, "JPEG and PNG"),
        ({"input": [item(PNG[:20])]}, DamagedImage, "header"),
        ({"input": [item(encoded("PNG", 11, 10))]}, ImageTooLarge, "the limit is 100"),
        ({"input": [item(encoded("JPEG", 11, 10))]}, ImageTooLarge, "the limit is 100"),
    ],
)
def test_request_is_refused(request_: Any, error: type[RequestError], words: str) -> None:
    with pytest.raises(error) as caught:
        parse(request_)
    assert type(caught.value) is error
    assert words in str(caught.value)


def test_bad_image_carries_its_place() -> None:
    with pytest.raises(UnsupportedImage) as caught:
        parse({"input": [item(), item(b"BM"), item(b"GIF89a")]})
    assert caught.value.index == 1


def test_count_is_checked_before_any_image() -> None:
    with pytest.raises(InvalidRequest, match="4 images"):
        parse({"input": [item(b"GIF89a")] * 4})


@pytest.mark.parametrize("bad", [item(b"GIF89a"), item() | {"url": "http://"}], ids=["415", "422"])
def test_refused_body_is_freed_with_its_error(bad: dict[str, Any]) -> None:
    """An error in a cycle would keep a body of 64 MiB until the next garbage collection."""
    body = orjson.dumps({"input": [bad]})
    before = sys.getrefcount(body)
    gc.disable()
    try:
        with pytest.raises(RequestError) as caught:
            wire.parse_request(body, LIMITS)
        del caught
        assert sys.getrefcount(body) == before
    finally:
        gc.enable()


# --- Anything at all ------------------------------------------------------------------------

MARKER = "k3ywords"
# a payload of more characters than a sentence may have, to be found again in one that repeats it
TEXTS = st.text(max_size=5) | st.sampled_from([MARKER * 100, url(PNG), url(PNG)[:-3], "image_url"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
URLS = TEXTS | st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["data:", "DATA:", "http:", ""]),
    st.sampled_from([MARKER, "image/png", ""]),
    st.sampled_from([";base64,", ",", ";base64"]),
    st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode()) | TEXTS,
)
ITEMS = (
    st.fixed_dictionaries({"type": st.just("image_url"), "url": URLS | VALUES})
    | st.fixed_dictionaries({"type": VALUES, "url": URLS})
    | VALUES
)
REQUESTS = (
    st.fixed_dictionaries(
        {}, optional={"model": VALUES, "input": st.lists(ITEMS, max_size=5) | VALUES, "x": VALUES}
    )
    | VALUES
)


@given(REQUESTS)
@example({"input": [{"type": "image_url", "url": f"data:{MARKER};base64,{MARKER * 100}"}]})
@example({"input": [{"type": "image_url", "url": f"http://{MARKER * 100}"}]})
@example({"input": [{"type": "image_url", "url": f"data:{MARKER * 100}"}]})
@example({"input": [{"type": "image_url", "url": f"data:image/png;base64,{MARKER * 100}!"}]})
@example({"input": [{"type": "image_url", "url": [MARKER * 100]}]})
@example({"input": [{"type": MARKER * 100}], "model": MARKER * 100})
@example({"input": MARKER * 100})
@example({"input": [item()], "model": {MARKER: MARKER}})
def test_any_json_is_a_request_or_one_refusal(value: Any) -> None:
    check_is_request_or_refusal(orjson.dumps(value))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_one_refusal(body: bytes) -> None:
    check_is_request_or_refusal(body)


@given(st.data())
def test_damaged_request_is_a_request_or_one_refusal(data: st.DataObject) -> None:
    body = bytearray(orjson.dumps({"model": "m", "input": [item(), item(JPEG)]}))
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[at] = data.draw(st.integers(0, 255))
    check_is_request_or_refusal(bytes(body))


def check_is_request_or_refusal(body: bytes) -> None:
    parsed = parsed_or_refused(body)
    if isinstance(parsed, RequestError):
        sentence = str(parsed)
        assert 10 < len(sentence) < 500
        assert MARKER not in sentence
        assert "\n" not in sentence
        assert len(wire.error_body(parsed, "an-id")) < 700
        assert 400 <= parsed.status < 500
    else:
        assert parsed.model is None or isinstance(parsed.model, str)
        assert 1 <= len(parsed.images) <= 3
        assert all(isinstance(image, bytes) and image for image in parsed.images)


def parsed_or_refused(body: bytes) -> wire.InferRequest | RequestError:
    try:
        return wire.parse_request(body, LIMITS)
    except RequestError as error:
        return error


# --- The response ---------------------------------------------------------------------------


def detections(boxes: np.ndarray, scores: np.ndarray, size: tuple[int, int]) -> Detections:
    """Class ids 0, 1, 2, 0, …"""
    class_ids = np.arange(len(scores), dtype=np.int32) % 3
    return Detections(boxes, scores, class_ids, *size)


NOTHING = detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), (48, 64))


def test_response_is_nims() -> None:
    boxes = np.array([[0, 12, 32, 48], [16, 0, 64, 24], [0, 0, 64, 48]], np.float32)
    found = Detections(
        boxes, np.array([0.75, 0.5, 0.25], np.float32), np.array([7, 2, 7], np.int32), 48, 64
    )
    document = orjson.loads(wire.response("m", [(found, ["cat", "dog", "cat"])], 0.5))
    cats = [
        *(
            {
                "x_min": 0,
                "y_min": 0.25,
                "x_max": 0.5,
                "y_max": 1,
                "confidence": 0.75,
                "class_id": 7,
            },
        ),
        *({"x_min": 0, "y_min": 0, "x_max": 1, "y_max": 1, "confidence": 0.25, "class_id": 7},),
    ]
    dog = {"x_min": 0.25, "y_min": 0, "x_max": 1, "y_max": 0.5, "confidence": 0.5, "class_id": 2}
    assert document == {
        "data": [{"index": 0, "bounding_boxes": {"cat": cats, "dog": [dog]}}],
        "model": "m",
        "usage": {"images_size_mb": 0.5},
    }


def test_image_without_detections_keeps_its_item() -> None:
    one = detections(np.ones((1, 4), np.float32), np.ones(1, np.float32), (4, 4))
    document = orjson.loads(wire.response("m", [(NOTHING, []), (one, ["cat"]), (NOTHING, [])], 1))
    assert [entry["index"] for entry in document["data"]] == [0, 1, 2]
    assert [len(entry["bounding_boxes"]) for entry in document["data"]] == [0, 1, 0]


def test_each_box_needs_its_label() -> None:
    one = detections(np.ones((1, 4), np.float32), np.ones(1, np.float32), (4, 4))
    with pytest.raises(ValueError, match="zip"):
        wire.response("m", [(one, [])], 1)


FLOATS = st.floats(0, 1, width=32)


@given(
    st.lists(st.tuples(FLOATS, FLOATS, FLOATS, FLOATS, FLOATS), max_size=6),
    st.tuples(st.integers(1, 5000), st.integers(1, 5000)),
)
@example([(0.1, 0.2, 1 / 3, 2 / 3, 0.7), (1e-45, 1e-38, 0.99999994, 1.0, 0.0)], (427, 641))
def test_float32_comes_back_to_the_last_bit(
    rows: list[tuple[float, ...]], size: tuple[int, int]
) -> None:
    numbers = np.array(rows, np.float32).reshape(-1, 5)
    numbers = numbers[np.argsort(-numbers[:, 4], kind="stable")]
    height, width = size
    boxes = numbers[:, :4] * np.array([width, height, width, height], np.float32)
    found = detections(boxes, numbers[:, 4].copy(), size)
    (entry,) = orjson.loads(wire.response("m", [(found, ["one"] * len(found))], 0))["data"]
    read = entry["bounding_boxes"].get("one", [])
    corners = [[box[key] for key in ("x_min", "y_min", "x_max", "y_max")] for box in read]
    again = np.array(corners, np.float32).reshape(-1, 4)
    assert again.tobytes() == found.boxes_norm().tobytes()
    scores = np.array([box["confidence"] for box in read], np.float32)
    assert scores.tobytes() == found.scores.tobytes()
    assert [box["class_id"] for box in read] == found.class_ids.tolist()


@pytest.mark.parametrize(
    ("error", "index", "expected"),
    [
        (InvalidRequest("words"), None, {"code": "invalid_request"}),
        (UnsupportedImage("words"), 2, {"code": "unsupported_image_type", "index": 2}),
        (DamagedImage("words"), 0, {"code": "damaged_image", "index": 0}),
        (DamagedImage("words"), None, {"code": "damaged_image"}),
        (BodyTooLarge("words"), None, {"code": "body_too_large"}),
        (Overloaded("words"), None, {"code": "overloaded"}),
        (DetserveError("words"), None, {"code": "internal_error"}),
    ],
)
def test_error_names_code_sentence_and_request(
    error: DetserveError, index: int | None, expected: dict[str, Any]
) -> None:
    if index is not None:
        error.index = index  # type: ignore[attr-defined]
    assert orjson.loads(wire.error_body(error, "an-id")) == {
        "error": {"message": "words", "request_id": "an-id", **expected}
    }


@pytest.mark.parametrize(
    ("claimed", "taken"),
    [
        ("a", True),
        ("0", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("Az09._:/-", True),
        ("", False),
        ("-a", False),
        (".a", False),
        ("a b", False),
        ("a\n", False),
        ("a\r\nx: y", False),
        ("é", False),
        ("٣", False),
        ("a;b", False),
    ],
)
def test_request_id_is_1_to_128_plain_characters(claimed: str, taken: bool) -> None:
    assert bool(wire.REQUEST_ID.fullmatch(claimed)) is taken
