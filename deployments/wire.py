"""The wire: a NIM-shaped request into images, detections into a NIM-shaped response.

Lenient on what foreign clients send beside the point (unknown keys, wrong media types), strict on
what decides the answer. No sentence here repeats anything a client sent.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pybase64

from deployments.config import IngressArgs
from models import images
from models.detections import Detections
from models.errors import DetserveError, ImageError, InvalidRequest, MalformedRequest, RequestError

REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


@dataclass(frozen=True)
class InferRequest:
    """model: as the client named it, or None. images: encoded bytes, in the client's order."""

    model: str | None
    images: list[bytes]

    @property
    def images_size_mb(self) -> float:
        """NIM's `usage.images_size_mb`: encoded bytes / 1024²."""
        return sum(map(len, self.images)) / 1024**2


def parse_request(body: bytes, limits: IngressArgs) -> InferRequest:
    """A request's body, checked in the order of DESIGN section 3, cheapest first.

    Raises:
        MalformedRequest: not JSON.
        InvalidRequest: not a request for detections.
        ImageError: an image that is not one, by content and header; nothing is decoded here.
    """
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedRequest("the body is not JSON") from error
    if not isinstance(request, dict):
        raise InvalidRequest("the body must be a JSON object with `input` and `model`")
    model = request.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest("`model` must be a string")
    items = request.get("input")
    if not isinstance(items, list) or not items:
        raise InvalidRequest(
            '`input` must be a list of {"type": "image_url", "url": "data:image/…;base64,…"}'
        )
    if len(items) > limits.max_images:
        raise InvalidRequest(
            f"`input` has {len(items)} images; this server takes {limits.max_images} a request"
        )
    decoded = []
    for index, item in enumerate(items):
        try:
            decoded.append(_image(item, limits.max_pixels))
        except ImageError as error:
            error.index = index
            raise
        except InvalidRequest as error:
            # no local name for it: the frame would hold the error, and the error the body's frame
            raise _at(index, error) from error
    return InferRequest(model, decoded)


def _at(index: int, error: InvalidRequest) -> InvalidRequest:
    placed = InvalidRequest(f"input[{index}]: {error}")
    placed.index = index
    return placed


def _image(item: Any, max_pixels: int) -> bytes:
    if not isinstance(item, dict) or item.get("type") != "image_url":
        raise InvalidRequest('each item of `input` must have the type "image_url"')
    url = item.get("url")
    if not isinstance(url, str):
        raise InvalidRequest("`url` must be a string")
    if url[:5].lower() != "data:":
        # an http: or file: URL would have this server read what the client cannot
        raise InvalidRequest("only data: URLs are taken; this server fetches nothing")
    head, comma, payload = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise InvalidRequest("a data: URL must read data:image/…;base64,…")
    try:
        data = pybase64.b64decode(payload, validate=True)
    except ValueError as error:
        raise InvalidRequest("the data: URL is not base64") from error
    images.inspect(data, max_pixels)  # by content: the media type is only a hint
    return data


def response(
    model: str, results: Sequence[tuple[Detections, Sequence[str]]], images_size_mb: float
) -> bytes:
    """The response's JSON; one `data` item for each image, in order, empty ones too.

    results: detections and the label of each box. Coordinates are float32 fractions of the image,
    written with all their digits, so that a client reads back the very bits.
    """
    data = [
        {"index": index, "bounding_boxes": _boxes(detections, labels)}
        for index, (detections, labels) in enumerate(results)
    ]
    document = {"data": data, "model": model, "usage": {"images_size_mb": images_size_mb}}
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def _boxes(detections: Detections, labels: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    rows = zip(
        labels, detections.boxes_norm(), detections.scores, detections.class_ids, strict=True
    )
    for label, (x_min, y_min, x_max, y_max), score, class_id in rows:
        grouped.setdefault(label, []).append(
            {
                "x_min": x_min,
                "y_min": y_min,
                "x_max": x_max,
                "y_max": y_max,
                "confidence": score,
                "class_id": class_id,
            }
        )
    return grouped


def server_timing(record: dict[str, Any]) -> str:
    """The header `Server-Timing` of an answered request's record, in milliseconds: the stages of
    the image that took longest, and the whole in the ingress. W3C Server Timing, section 3."""
    slowest = max(record["tasks"], key=lambda task: task["task_call_wall_ms"])
    spent = {
        "queue": slowest["queue_ms"],
        **slowest["stages_ms"],
        "total": record["handler_ms"],
    }
    return ", ".join(f"{name};dur={value:.3f}" for name, value in spent.items())


def error_body(error: DetserveError, request_id: str) -> bytes:
    """An error's JSON: code, sentence, request id and, for an item of `input`, its place."""
    detail: dict[str, Any] = {
        "code": error.code,
        "message": str(error),
        "request_id": request_id,
    }
    if isinstance(error, RequestError) and error.index is not None:
        detail["index"] = error.index
    return orjson.dumps({"error": detail})
