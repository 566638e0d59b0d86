"""An HTTP client that checks everything it is answered, and the images and requests it sends.

Shared by the tests that attack the live application.
"""

import base64
import io
import time
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import orjson
from PIL import Image

from deployments import records
from qualification.client import data_url
from qualification.evidence import WireBox, difference, parse_response

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
TASK_KEYS = {"replica", "task_call_wall_ms", "queue_ms", "stages_ms", "batch"}
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
