"""Bad input to the live application: each has its own status, code and request id, and the next
good request is answered to the last bit.
"""

import uuid
from typing import Any

import orjson
import pytest

from qualification.client import data_url
from tests.deployments.attacker import (
    MARKER,
    MIB,
    MODEL,
    SERVED,
    Maker,
    Server,
    check_error,
    converted,
    encoded,
    labelled,
    of,
    png,
    request,
    with_broken_checksum,
    with_size_in_jpeg,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        pytest.param(b"", 400, "malformed_request", id="empty"),
        pytest.param(b"hello", 400, "malformed_request", id="not JSON"),
        pytest.param(b'{"model":', 400, "malformed_request", id="JSON cut short"),
        pytest.param(b'{"model": NaN}', 400, "malformed_request", id="NaN"),
        pytest.param(b"\xff\xd8\xff\xe0", 400, "malformed_request", id="an image and no JSON"),
        pytest.param('{"input": 1}'.encode("utf-16"), 400, "malformed_request", id="UTF-16"),
        pytest.param(rb'{"model": "\ud800"}', 400, "malformed_request", id="half a surrogate"),
        pytest.param(b"[" * 100_000, 400, "malformed_request", id="100k open brackets"),
        pytest.param(
            b"[" * 100_000 + b"]" * 100_000, 400, "malformed_request", id="nested 100k deep"
        ),
        pytest.param(b'{"a":' * 100_000, 400, "malformed_request", id="100k open objects"),
        pytest.param(b"[]", 422, "invalid_request", id="a list"),
        pytest.param(b"null", 422, "invalid_request", id="null"),
        pytest.param(b'"text"', 422, "invalid_request", id="a string"),
        pytest.param(request(model=MODEL), 422, "invalid_request", id="input is empty"),
        pytest.param(b'{"model": "yolox-nano"}', 422, "invalid_request", id="no input"),
        pytest.param(
            request(input={"url": "data:,"}), 422, "invalid_request", id="input is not a list"
        ),
        pytest.param(request("data:,", model=5), 422, "invalid_request", id="model is a number"),
        pytest.param(request(input=["data:,"]), 422, "invalid_request", id="item is a string"),
        pytest.param(
            request(input=[{"type": "text", "text": "hello"}]),
            422,
            "invalid_request",
            id="item of another type",
        ),
        pytest.param(
            request(input=[{"type": "image_url"}]), 422, "invalid_request", id="item without url"
        ),
        pytest.param(request({"url": "data:,"}), 422, "invalid_request", id="url is an object"),
        pytest.param(request("http://127.0.0.1:1/cat.jpg"), 422, "invalid_request", id="http: URL"),
        pytest.param(request("file:///etc/passwd"), 422, "invalid_request", id="file: URL"),
        pytest.param(request("/etc/passwd"), 422, "invalid_request", id="a path"),
        pytest.param(request(""), 422, "invalid_request", id="empty url"),
        pytest.param(
            request("data:image/jpeg;base64,/9j/4*!"), 422, "invalid_request", id="not base64"
        ),
        pytest.param(
            request("data:image/jpeg;base64,/9j/é"), 422, "invalid_request", id="base64 with é"
        ),
        pytest.param(
            request("data:image/jpeg,%FF%D8%FF"), 422, "invalid_request", id="data: without base64"
        ),
        pytest.param(request("data:"), 422, "invalid_request", id="data: alone"),
        pytest.param(
            request("data:image/png;base64,"), 415, "unsupported_image_type", id="no bytes"
        ),
    ],
)
def test_body_is_refused(server: Server, body: bytes, status: int, code: str) -> None:
    server.refuses(body, status, code)


def test_200_images_are_refused_with_the_limit(server: Server, picture: bytes) -> None:
    error = server.refuses(request(*[data_url(picture[:1000])] * 200), 422, "invalid_request")
    assert "200" in error["message"]
    assert "32" in error["message"]


@pytest.mark.parametrize("name", ["zebra-finder", "YOLOX-NANO", "ingress", "../yolox-nano"])
def test_unknown_model_is_refused_naming_those_served(
    server: Server, picture: bytes, name: str
) -> None:
    error = server.refuses(request(data_url(picture), model=name), 404, "unknown_model")
    assert all(served in error["message"] for served in SERVED)
    assert name not in error["message"]


@pytest.mark.parametrize(
    "more", [{}, {"model": None}, {"model": ""}], ids=["absent", "null", "empty"]
)
def test_model_is_needed_where_two_are_served(
    server: Server, picture: bytes, more: dict[str, Any]
) -> None:
    body = {"input": [{"type": "image_url", "url": data_url(picture)}], **more}
    error = server.refuses(orjson.dumps(body), 404, "unknown_model")
    assert all(served in error["message"] for served in SERVED)


@pytest.mark.parametrize(
    ("make", "status", "code"),
    [
        pytest.param(lambda _: b"just text", 415, "unsupported_image_type", id="text as a PNG"),
        pytest.param(
            lambda p: encoded(converted(p, "P"), "GIF"), 415, "unsupported_image_type", id="GIF"
        ),
        pytest.param(
            lambda p: encoded(converted(p, "RGB"), "WEBP"), 415, "unsupported_image_type", id="WebP"
        ),
        pytest.param(
            lambda p: encoded(converted(p, "RGB"), "BMP"), 415, "unsupported_image_type", id="BMP"
        ),
        pytest.param(lambda _: b"<svg/>", 415, "unsupported_image_type", id="SVG"),
        pytest.param(lambda p: p[: len(p) // 2], 422, "damaged_image", id="half a JPEG"),
        pytest.param(lambda p: p[:-2], 422, "damaged_image", id="JPEG without its last two bytes"),
        pytest.param(
            lambda p: p[: len(p) // 2] + b"\xff\xd9", 422, "damaged_image", id="half a JPEG, closed"
        ),
        pytest.param(lambda p: p[:4], 422, "damaged_image", id="start of a JPEG"),
        pytest.param(with_broken_checksum, 422, "damaged_image", id="PNG with a wrong checksum"),
        pytest.param(
            lambda p: encoded(converted(p, "RGB"))[:-12], 422, "damaged_image", id="PNG, no IEND"
        ),
        pytest.param(
            lambda p: encoded(converted(p, "RGB"))[:20_000], 422, "damaged_image", id="PNG cut"
        ),
        pytest.param(lambda _: png(0, 9, 8, 0, b""), 422, "damaged_image", id="PNG of no pixels"),
        # neither stream is whole: damage would be found by decoding, the size was read before
        pytest.param(
            lambda _: png(60_000, 60_000, 8, 2, bytes(100 * MIB)),
            422,
            "image_too_large",
            id="PNG of 60000x60000 in 100 kB",
        ),
        pytest.param(
            lambda p: with_size_in_jpeg(p, 65_500, 65_500),
            422,
            "image_too_large",
            id="JPEG of 65500x65500",
        ),
    ],
)
def test_image_is_refused(
    server: Server, picture: bytes, make: Maker, status: int, code: str
) -> None:
    bad = make(picture)
    assert len(bad) < MIB
    error = server.refuses(labelled("image/png", bad), status, code)
    assert error["index"] == 0


@pytest.mark.parametrize(
    ("make", "status", "code"),
    [
        (lambda p: b"GIF89a", 415, "unsupported_image_type"),
        (lambda p: p[: len(p) // 2], 422, "damaged_image"),
        (lambda p: with_size_in_jpeg(p, 65_500, 65_500), 422, "image_too_large"),
    ],
    ids=["found by content", "found by decoding", "found by header"],
)
def test_one_bad_image_of_several_fails_the_request_with_its_index(
    server: Server, picture: bytes, make: Maker, status: int, code: str
) -> None:
    error = server.refuses(of(picture, picture, make(picture), picture), status, code)
    assert error["index"] == 2


def test_one_bad_item_of_several_is_named(server: Server, picture: bytes) -> None:
    body = request(data_url(picture), "http://127.0.0.1/cat.jpg")
    error = server.refuses(body, 422, "invalid_request")
    assert (error["index"], "input[1]" in error["message"]) == (1, True)


@pytest.mark.parametrize(
    "claimed",
    [b"", b"a b", b"-a", b"a" * 129, b"a;b", b'a"b', b"<script>", "é".encode(), b"\xff\xfe"],
    ids=repr,
)
def test_bad_request_id_is_refused_and_another_one_made(server: Server, claimed: bytes) -> None:
    answer = server.post(server.good, **{"x-request-id": claimed})
    error = check_error(answer.status_code, answer.content, 400, "malformed_request")
    (made,) = answer.headers.get_list("x-request-id")
    assert error["request_id"] == made
    assert made.encode() != claimed
    assert len(made) == 32
    assert server.record(made)["status"] == 400
    server.is_unharmed()


@pytest.mark.parametrize("claimed", ["a", "a" * 128, "0.1_2:3/4-5", "A:b"])
def test_good_request_id_is_echoed_once(server: Server, claimed: str) -> None:
    answer = server.post(server.good, **{"x-request-id": claimed})
    assert answer.status_code == 200
    assert answer.headers.get_list("x-request-id") == [claimed]


def test_one_of_two_request_ids_is_echoed(server: Server) -> None:
    claimed = [("x-request-id", "first"), ("x-request-id", "second")]
    answer = server.http.post("/v1/infer", content=server.good, headers=claimed)
    assert answer.status_code == 200
    assert answer.headers.get_list("x-request-id") == ["first"]


def test_request_id_is_made_for_who_sends_none(server: Server) -> None:
    made = [server.post(server.good).headers.get_list("x-request-id") for _ in range(2)]
    assert [len(ids) for ids in made] == [1, 1]
    assert made[0] != made[1]
    assert server.record(made[0][0])["status"] == 200


@pytest.mark.parametrize("name", ["serve_multiplexed_model_id", "x-session-id", "user-agent"])
def test_header_that_is_not_utf_8_harms_nothing(server: Server, name: str) -> None:
    assert server.post(server.good, **{name: b"\xff\xfe"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "unknown_path"),
        ("POST", "/v1/infer/", 404, "unknown_path"),
        ("POST", "/v2/infer", 404, "unknown_path"),
        ("GET", f"/v1/{MARKER}", 404, "unknown_path"),
        ("GET", "/v1/../../etc/passwd", 404, "unknown_path"),
        ("GET", "/v1/infer", 405, "method_not_allowed"),
        ("DELETE", "/v1/infer", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
    ],
)
def test_wrong_path_or_method_is_refused(
    server: Server, method: str, path: str, status: int, code: str
) -> None:
    request_id = f"path-{uuid.uuid4()}"
    answer = server.http.request(method, path, headers={"x-request-id": request_id})
    error = check_error(answer.status_code, answer.content, status, code)
    assert error["request_id"] == request_id
    assert answer.headers.get_list("x-request-id") == [request_id]
    assert ("allow" in answer.headers) == (status == 405)
    assert MARKER not in answer.text
    server.is_unharmed()
