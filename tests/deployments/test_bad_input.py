"""The live application under attack: each bad input gets its own refusal, and odd but valid images
their right boxes. After each refusal the server still gives its good answer to the last bit.
"""

import base64
import http.client
import io
import math
import select
import socket
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
from PIL import Image

from deployments import records
from models.images import decode
from qualification.client import data_url
from qualification.evidence import WireBox, difference, parse_response

pytestmark = pytest.mark.slow

MODEL, SERVED = "yolox-nano", ("yolov8n-coco", "yolox-nano")
ZEBRAS = "000000000154.jpg"  # three boxes, all far above the threshold of 0.25
OTHERS = ("000000000081.jpg", "000000000049.jpg")
MIB = 1 << 20
MAX_BODY = 64 * MIB
# What the kernel and HAProxy may hold of a body that the server has stopped reading.
IN_FLIGHT = 32 * MIB
POLL_S = 30
MARKER = "k3ywords"
RECORD_KEYS = {
    *("id", "time", "status", "replica", "handler_ms", "error", "body_bytes", "images"),
    *("image_bytes", "model", "bundle_digest", "tasks"),
}
TASK_KEYS = {"replica", "task_call_wall_ms", "queue_ms", "stages_ms"}
STAGES = {"decode", "preprocess", "engine", "postprocess"}

Maker = Callable[[bytes], bytes]


def request(*urls: Any, model: Any = MODEL, **more: Any) -> bytes:
    """A request's JSON; a model of None is left out."""
    named = {} if model is None else {"model": model}
    items = [{"type": "image_url", "url": url} for url in urls]
    return orjson.dumps({**named, "input": items, **more})


def of(*images: bytes) -> bytes:
    return request(*map(data_url, images))


def labelled(kind: str, data: bytes) -> bytes:
    return request(f"data:{kind};base64,{base64.b64encode(data).decode()}")


def encoded(pixels: np.ndarray | Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def converted(picture: bytes, mode: str) -> Image.Image:
    return Image.open(io.BytesIO(picture)).convert(mode)


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    checksum = zlib.crc32(kind + content).to_bytes(4, "big")
    return len(content).to_bytes(4, "big") + kind + content + checksum


def png(height: int, width: int, depth: int, colours: int, rows: bytes) -> bytes:
    """A PNG of rows that have their filter bytes already; for what Pillow cannot write."""
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([depth, colours, 0, 0, 0])
    idat = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + idat + chunk(b"IEND")


def png16(picture: bytes, colours: int, mode: str) -> bytes:
    """16-bit samples whose low bytes are noise: the high bytes are the picture."""
    high = np.asarray(converted(picture, mode))
    low = np.random.default_rng(3).integers(0, 256, high.shape, np.uint8)
    samples = np.stack([high, low], axis=-1).reshape(len(high), -1)
    rows = b"".join(b"\0" + row.tobytes() for row in samples)
    return png(high.shape[0], high.shape[1], 16, colours, rows)


def with_broken_checksum(picture: bytes) -> bytes:
    whole = encoded(converted(picture, "RGB"))
    at = whole.index(b"IDAT") + 4 + int.from_bytes(whole[33:37], "big")
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


def with_size_in_jpeg(picture: bytes, height: int, width: int) -> bytes:
    at = picture.index(b"\xff\xc0") + 5  # SOF0: marker, length, precision, height, width
    return picture[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + picture[at + 4 :]


# --- A client that checks everything --------------------------------------------------------


@dataclass
class Server:
    """The application with a good request whose answer is known."""

    http: httpx.Client
    port: int
    good: bytes
    boxes: list[WireBox]
    started: float

    def post(self, content: Any, **headers: Any) -> httpx.Response:
        return self.http.post("/v1/infer", content=content, headers=headers)

    def is_unharmed(self) -> None:
        answer = self.post(self.good)
        assert answer.status_code == 200, answer.text
        (boxes,) = parse_response(answer.content)
        assert difference(self.boxes, boxes) is None

    def refuses(self, content: Any, status: int, code: str) -> dict[str, Any]:
        """Send a bad body, check the answer, its record and the good request after it; returns
        the answer's `error`."""
        request_id = f"bad-{uuid.uuid4()}"
        answer = self.post(content, **{"x-request-id": request_id})
        error = check_error(answer.status_code, answer.content, status, code)
        assert error["request_id"] == request_id
        assert answer.headers.get_list("x-request-id") == [request_id]
        assert len(answer.content) < 4096
        assert MARKER not in answer.text + str(answer.headers)
        record = self.record(request_id)
        assert (record["status"], record["error"]) == (status, code)
        self.is_unharmed()
        return error

    def accepts(self, content: bytes, images: int = 1) -> list[list[WireBox]]:
        """The boxes of each image; a sound answer with the id sent and a record of it."""
        request_id = f"good-{uuid.uuid4()}"
        answer = self.post(content, **{"x-request-id": request_id})
        assert answer.status_code == 200, answer.text
        assert answer.headers.get_list("x-request-id") == [request_id]
        assert answer.headers["content-type"] == "application/json"
        document = answer.json()
        assert set(document) == {"data", "model", "usage"}
        assert document["model"] == MODEL
        assert len(self.record(request_id)["tasks"]) == images
        return parse_response(answer.content, images)

    def record(self, request_id: str) -> dict[str, Any]:
        """The one record of a request, which may still have to be written."""
        deadline = time.monotonic() + POLL_S
        while time.monotonic() < deadline:
            found = [line for line in records.read(self.started) if line["id"] == request_id]
            if found:
                (record,) = found
                check_is_content_free(record)
                return record
            time.sleep(0.02)
        raise AssertionError(f"no record of {request_id} within {POLL_S} s")


def check_error(found: int, content: bytes, status: int, code: str) -> dict[str, Any]:
    assert found == status, content[:500]
    document = orjson.loads(content)
    assert set(document) == {"error"}
    error: dict[str, Any] = document["error"]
    assert set(error) - {"index"} == {"code", "message", "request_id"}
    assert error["code"] == code
    assert len(error["message"]) > 10
    return error


def check_is_content_free(record: dict[str, Any]) -> None:
    assert set(record) <= RECORD_KEYS
    line = orjson.dumps(record).decode()
    assert "base64" not in line
    assert MARKER not in line
    strings = [value for value in record.values() if isinstance(value, str)]
    assert max(map(len, strings)) <= 128  # a request id's most
    for task in record.get("tasks", []):
        assert set(task) == TASK_KEYS
        assert set(task["stages_ms"]) == STAGES


@pytest.fixture(scope="module")
def picture(data: Path) -> bytes:
    return (data / "coco128" / "images" / ZEBRAS).read_bytes()


@pytest.fixture(scope="module")
def server(application, http, native, picture: bytes) -> Server:
    started = time.time()
    boxes = native.detect(MODEL, ZEBRAS, picture).wire_boxes()
    assert len(boxes) == 3
    found = Server(http, application.port, of(picture), boxes, started)
    found.is_unharmed()
    return found


# --- Refused: the body ----------------------------------------------------------------------


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


# --- Refused: the image ---------------------------------------------------------------------


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


# --- Refused: too large, or too talkative an answer -----------------------------------------


def pieces(start: bytes, piece: bytes, count: int) -> Iterator[bytes]:
    yield start
    for _ in range(count):
        yield piece


def send_until_answered(port: int, parts: Iterator[bytes]) -> tuple[int, http.client.HTTPResponse]:
    """Bytes that a client got rid of before the answer began, and the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=POLL_S) as client:
        client.setblocking(False)
        sent, rest = 0, b""
        while True:
            readable, writable, _ = select.select([client], [client], [], POLL_S)
            assert readable or writable, "the server neither reads nor answers"
            rest = rest or next(parts, b"")
            if readable or not rest:
                break
            count = client.send(rest)
            sent, rest = sent + count, rest[count:]
        client.settimeout(POLL_S)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        answer.body = answer.read()  # type: ignore[attr-defined]
        return sent, answer


@pytest.mark.parametrize(
    ("framing", "wrap", "most"),
    [
        (f"Content-Length: {300 * MIB}", lambda piece: piece, IN_FLIGHT),
        (
            "Transfer-Encoding: chunked",
            lambda piece: b"%x\r\n%b\r\n" % (len(piece), piece),
            MAX_BODY + IN_FLIGHT,
        ),
    ],
    ids=["declared", "streamed"],
)
def test_300_mb_are_refused_before_they_are_read(
    server: Server, framing: str, wrap: Callable[[bytes], bytes], most: int
) -> None:
    request_id = f"large-{uuid.uuid4()}"
    head = (
        f"POST /v1/infer HTTP/1.1\r\nHost: test\r\nX-Request-ID: {request_id}\r\n{framing}\r\n\r\n"
    )
    sent, answer = send_until_answered(
        server.port, pieces(head.encode(), wrap(b" " * 65_536), 300 * 16)
    )
    error = check_error(answer.status, answer.body, 413, "body_too_large")
    assert error["request_id"] == request_id
    assert answer.headers.get_all("x-request-id") == [request_id]
    assert sent < most
    assert server.record(request_id)["status"] == 413
    server.is_unharmed()


@pytest.mark.parametrize("streamed", [False, True], ids=["declared", "streamed"])
def test_a_client_that_sends_70_mb_before_it_reads_still_gets_its_413(
    server: Server, streamed: bool
) -> None:
    body = b" " * (70 * MIB)
    server.refuses(
        (body[at : at + MIB] for at in range(0, len(body), MIB)) if streamed else body,
        413,
        "body_too_large",
    )


LONG = MARKER * (2 * MIB // len(MARKER))


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        pytest.param(LONG.encode(), 400, "malformed_request", id="no JSON"),
        pytest.param(orjson.dumps(LONG)[:-1], 400, "malformed_request", id="JSON string cut"),
        pytest.param(orjson.dumps(LONG), 422, "invalid_request", id="JSON string"),
        pytest.param(request("data:,", model=[LONG]), 422, "invalid_request", id="model in a list"),
        pytest.param(request(input=LONG), 422, "invalid_request", id="input is a string"),
        pytest.param(request(input=[LONG]), 422, "invalid_request", id="item is a string"),
        pytest.param(request(input=[{"type": LONG}]), 422, "invalid_request", id="long type"),
        pytest.param(request(input=[{LONG: LONG}]), 422, "invalid_request", id="long key"),
        pytest.param(request([[{"a": LONG}]]), 422, "invalid_request", id="url is a list"),
        pytest.param(
            request(f"data:image/png;base64,{LONG}!"), 422, "invalid_request", id="bad base64"
        ),
        pytest.param(
            request(f"data:{LONG};base64,iVBO"), 415, "unsupported_image_type", id="long media type"
        ),
        pytest.param(request(f"http://{LONG}"), 422, "invalid_request", id="long http: URL"),
        pytest.param(request(f"data:{LONG}"), 422, "invalid_request", id="long data: URL"),
        pytest.param(
            labelled("image/png", LONG.encode()), 415, "unsupported_image_type", id="long text"
        ),
    ],
)
def test_two_malformed_megabytes_are_not_repeated(
    server: Server, body: bytes, status: int, code: str
) -> None:
    assert len(body) > 1.9 * MIB
    server.refuses(body, status, code)


def test_long_model_name_is_not_repeated(server: Server, picture: bytes) -> None:
    server.refuses(request(data_url(picture), model=LONG), 404, "unknown_model")


# --- Refused: identity, path and method -----------------------------------------------------


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
    assert MARKER not in answer.text
    server.is_unharmed()


# --- Clients that hang up -------------------------------------------------------------------


def upload(port: int, request_id: str, body: bytes, sent: int) -> socket.socket:
    """A client that has sent the head and `sent` bytes of a request."""
    head = f"POST /v1/infer HTTP/1.1\r\nHost: test\r\nX-Request-ID: {request_id}\r\n"
    client = socket.create_connection(("127.0.0.1", port), timeout=POLL_S)
    client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:sent])
    return client


def test_a_client_that_hangs_up_halfway_is_recorded_as_gone(server: Server) -> None:
    request_id = f"half-{uuid.uuid4()}"
    # far more than the kernel and HAProxy hold: the server has begun to read
    upload(server.port, request_id, b" " * (60 * MIB), IN_FLIGHT).close()
    record = server.record(request_id)
    assert record["status"] == 499
    assert "images" not in record
    server.is_unharmed()


def test_clients_that_hang_up_before_the_answer_free_their_slots(
    server: Server, picture: bytes
) -> None:
    """Two of them, as a replica has 4 slots and 32 images fill them each time."""
    slow = of(*[encoded(Image.new("RGB", (4000, 4000), "orange"))] * 32)  # seconds of decoding
    other = request(data_url(picture), model="yolov8n-coco")
    for _ in range(2):
        request_id = f"gone-{uuid.uuid4()}"
        client = upload(server.port, request_id, slow, len(slow))
        # the other model's answer takes longer than the slow request's way into its replica
        assert server.post(other).status_code == 200
        client.close()
        record = server.record(request_id)
        assert record["status"] == 499
        assert (record["model"], record["images"]) == (MODEL, 32)
        server.is_unharmed()


# --- Accepted -------------------------------------------------------------------------------


def test_media_type_and_unknown_keys_change_nothing(server: Server, picture: bytes) -> None:
    plain = base64.b64encode(picture).decode()
    for body in (
        labelled("img/png", picture),
        labelled("image/png", picture),
        labelled("", picture),
        labelled("image/jpeg;name=zebra.jpg", picture),
        request(f"DATA:image/jpeg;BASE64,{plain}"),
        request(data_url(picture), threshold=0.99, merge_labels=["zebra"], stream=True, n=None),
        orjson.dumps(
            {
                "model": MODEL,
                "input": [{"type": "image_url", "url": data_url(picture), "detail": "high"}],
            }
        ),
    ):
        (boxes,) = server.accepts(body)
        assert difference(server.boxes, boxes) is None


def test_three_images_give_three_items_in_order(
    server: Server, native, data: Path, picture: bytes
) -> None:
    others = [(data / "coco128" / "images" / name).read_bytes() for name in OTHERS]
    images = [others[0], picture, others[1]]
    answers = server.accepts(of(*images), images=3)
    for image, boxes in zip(images, answers, strict=True):
        assert boxes
        assert difference(native.detect(MODEL, "", image).wire_boxes(), boxes) is None


def grey_repeated(picture: bytes) -> bytes:
    return encoded(converted(picture, "L").convert("RGB"))


def with_alpha(picture: bytes) -> bytes:
    image = converted(picture, "RGB")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return encoded(image)


def rgb(picture: bytes) -> bytes:
    return encoded(converted(picture, "RGB"))


@pytest.mark.parametrize(
    ("make", "plain"),
    [
        pytest.param(rgb, rgb, id="RGB PNG"),
        pytest.param(with_alpha, rgb, id="PNG with transparency"),
        pytest.param(lambda p: png16(p, 2, "RGB"), rgb, id="16-bit RGB PNG"),
        pytest.param(lambda p: png16(p, 0, "L"), grey_repeated, id="16-bit grey PNG"),
        pytest.param(lambda p: encoded(converted(p, "L")), grey_repeated, id="grey PNG"),
        pytest.param(
            lambda p: encoded(converted(p, "RGB").quantize(256)),
            lambda p: encoded(converted(p, "RGB").quantize(256).convert("RGB")),
            id="palette PNG",
        ),
        pytest.param(
            lambda p: encoded(converted(p, "RGB"), "JPEG", quality=90, progressive=True),
            lambda p: encoded(converted(p, "RGB"), "JPEG", quality=90),
            id="progressive JPEG",
        ),
        pytest.param(
            lambda p: encoded(converted(p, "L"), "JPEG", quality=90),
            lambda p: encoded(
                decode(encoded(converted(p, "L"), "JPEG", quality=90), 1_000_000)[:, :, 0]
            ),
            id="grey JPEG",
        ),
    ],
)
def test_image_gives_the_boxes_of_its_plain_equivalent(
    server: Server, native, picture: bytes, make: Maker, plain: Maker
) -> None:
    (boxes,) = server.accepts(of(make(picture)))
    expected = native.detect(MODEL, "", plain(picture)).wire_boxes()
    assert difference(expected, boxes) is None
    check_close(boxes, server.boxes, iou=0.8)


def test_cmyk_jpeg_gives_the_boxes_of_the_original(server: Server, picture: bytes) -> None:
    (boxes,) = server.accepts(of(encoded(converted(picture, "CMYK"), "JPEG", quality=95)))
    check_close(boxes, server.boxes, iou=0.9)


@pytest.mark.parametrize(
    ("orientation", "stored_as"),
    [
        (1, None),
        (2, Image.Transpose.FLIP_LEFT_RIGHT),
        (3, Image.Transpose.ROTATE_180),
        (4, Image.Transpose.FLIP_TOP_BOTTOM),
        (5, Image.Transpose.TRANSPOSE),
        (6, Image.Transpose.ROTATE_90),
        (7, Image.Transpose.TRANSVERSE),
        (8, Image.Transpose.ROTATE_270),
    ],
)
def test_boxes_are_in_the_upright_image(
    server: Server, native, picture: bytes, orientation: int, stored_as: Image.Transpose | None
) -> None:
    upright = converted(picture, "RGB")
    stored = upright if stored_as is None else upright.transpose(stored_as)
    exif = Image.Exif()
    exif[0x0112] = orientation
    # the JPEG's own pixels, put upright by Pillow: the expected boxes to the last bit
    jpeg = encoded(stored, "JPEG", quality=95)
    pixels = Image.fromarray(decode(jpeg, 1_000_000))
    back = {
        Image.Transpose.ROTATE_90: Image.Transpose.ROTATE_270,
        Image.Transpose.ROTATE_270: Image.Transpose.ROTATE_90,
    }.get(stored_as, stored_as)
    plain = encoded(pixels if back is None else pixels.transpose(back))
    (boxes,) = server.accepts(of(encoded(stored, "JPEG", quality=95, exif=exif)))
    assert difference(native.detect(MODEL, "", plain).wire_boxes(), boxes) is None
    check_close(boxes, server.boxes, iou=0.9)


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (2, 3)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_thin_image_is_answered(server: Server, native, size: tuple[int, int], kind: str) -> None:
    image = encoded(Image.new("RGB", size, "orange"), kind)
    (boxes,) = server.accepts(of(image))  # which are inside the image, parse_response says
    assert difference(native.detect(MODEL, "", image).wire_boxes(), boxes) is None


def test_image_without_detections_has_its_item(server: Server, picture: bytes) -> None:
    grey = encoded(Image.new("RGB", (64, 48), "grey"))
    data = server.post(of(grey, picture, grey)).json()["data"]
    assert [item["index"] for item in data] == [0, 1, 2]
    assert [item["bounding_boxes"] for item in (data[0], data[2])] == [{}, {}]
    assert set(data[1]["bounding_boxes"]) == {"zebra"}


def test_image_of_several_megabytes_is_answered(server: Server, native) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1400, 1500, 3), np.uint8)
    image = encoded(noise, compress_level=0)
    assert len(image) > 6 * MIB
    (boxes,) = server.accepts(of(image))
    assert difference(native.detect(MODEL, "", image).wire_boxes(), boxes) is None


def check_close(found: list[WireBox], expected: list[WireBox], iou: float) -> None:
    """The same labels, each box on its own partner, scores within 0.1."""
    assert len(found) == len(expected)
    rest = list(found)
    for wanted in expected:
        best = max(rest, key=lambda box: overlap(box, wanted))
        assert best[0] == wanted[0]
        assert overlap(best, wanted) >= iou
        assert math.isclose(best[6], wanted[6], abs_tol=0.1)
        rest.remove(best)


def overlap(one: WireBox, other: WireBox) -> float:
    """Intersection over union."""
    (left, top, right, bottom), (x_min, y_min, x_max, y_max) = one[2:6], other[2:6]
    common = max(0.0, min(right, x_max) - max(left, x_min)) * max(
        0.0, min(bottom, y_max) - max(top, y_min)
    )
    areas = (right - left) * (bottom - top) + (x_max - x_min) * (y_max - y_min)
    return common / (areas - common)


def test_numbers_carry_every_bit_of_float32(server: Server, native, picture: bytes) -> None:
    seen = native.detect(MODEL, ZEBRAS, picture)
    (item,) = server.post(server.good).json()["data"]
    boxes = sorted(item["bounding_boxes"]["zebra"], key=lambda box: -box["confidence"])
    corners = [[box[key] for key in ("x_min", "y_min", "x_max", "y_max")] for box in boxes]
    scores = [box["confidence"] for box in boxes]
    assert np.array(corners, np.float32).tobytes() == seen.detections.boxes_norm().tobytes()
    assert np.array(scores, np.float32).tobytes() == seen.detections.scores.tobytes()
    assert [box["class_id"] for box in boxes] == seen.detections.class_ids.tolist()


# --- Records and the other paths ------------------------------------------------------------


def test_record_of_an_answer_is_complete(server: Server, picture: bytes) -> None:
    request_id = f"record-{uuid.uuid4()}"
    body = of(picture, picture)
    answer = server.post(body, **{"x-request-id": request_id})
    assert answer.json()["usage"] == {"images_size_mb": 2 * len(picture) / MIB}
    record = server.record(request_id)
    assert set(record) == RECORD_KEYS - {"error"}
    assert record["status"] == 200
    assert record["model"] == MODEL
    assert (record["images"], record["image_bytes"]) == (2, 2 * len(picture))
    assert record["body_bytes"] == len(body)
    assert len(record["bundle_digest"]) == 64
    for task in record["tasks"]:
        wall = task["task_call_wall_ms"]
        assert 0 < sum(task["stages_ms"].values()) <= wall <= record["handler_ms"]
        assert task["queue_ms"] >= 0


def test_no_request_has_two_records(server: Server) -> None:
    """None of all that this module sent so far; a late second record would show here."""
    ids = [record["id"] for record in records.read(server.started)]
    given = [one for one in ids if one.startswith(("bad-", "good-", "large-", "half-", "gone-"))]
    assert given
    assert len(given) == len(set(given))


def test_models_lists_what_is_served(server: Server) -> None:
    document = server.http.get("/v1/models").json()
    assert document["object"] == "list"
    entries = {entry["id"]: entry for entry in document["data"]}
    assert set(SERVED) <= set(entries)
    for name, family in zip(SERVED, ("yolov8", "yolox"), strict=True):
        entry = entries[name]
        assert entry["object"] == "model"
        assert entry["owned_by"] == "detserve"
        assert entry["ready"] is True
        assert entry["root"] == entry["checkpoint"] == name
        assert entry["family"] == family
        assert len(entry["labels"]) == 80
        assert entry["labels"][0] == "person"
        assert len(bytes.fromhex(entry["bundle_digest"])) == 32
        assert entry["engine"] == "onnxruntime"
        assert entry["precision"] == "fp32"
        assert isinstance(entry["qualification"]["status"], str)


def test_metadata_has_nims_keys(server: Server) -> None:
    document = server.http.get("/v1/metadata").json()
    assert set(document) == {"version", "modelInfo", "assetInfo", "licenseInfo"}
    assert set(SERVED) <= {info["modelUrl"] for info in document["modelInfo"]}
    assert set(SERVED) <= {info["shortName"].split(":")[0] for info in document["modelInfo"]}
    assert set(SERVED) <= set(document["licenseInfo"])
    assert document["assetInfo"] == []


@pytest.mark.parametrize(("path", "word"), [("live", "live"), ("ready", "ready")])
def test_health_is_nims(server: Server, path: str, word: str) -> None:
    answer = server.http.get(f"/v1/health/{path}")
    assert answer.status_code == 200
    assert answer.json() == {"object": "health.response", "message": word, word: True}
    assert len(answer.headers.get_list("x-request-id")) == 1
