"""Requests that are too large, answers that would be, and clients that hang up."""

import http.client
import select
import socket
import uuid
from collections.abc import Callable, Iterator

import orjson
import pytest
from PIL import Image

from qualification.client import data_url
from tests.deployments.attacker import (
    IN_FLIGHT,
    MARKER,
    MAX_BODY,
    MIB,
    MODEL,
    POLL_S,
    Server,
    check_error,
    encoded,
    labelled,
    of,
    request,
)

pytestmark = pytest.mark.slow


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
