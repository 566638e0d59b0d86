"""Odd but valid images and requests, each with the right boxes from the live application."""

import base64
import math
from pathlib import Path

import numpy as np
import orjson
import pytest
from PIL import Image

from models.images import decode
from qualification.client import data_url
from qualification.evidence import WireBox, difference
from tests.deployments.attacker import (
    MIB,
    MODEL,
    OTHERS,
    ZEBRAS,
    Maker,
    Server,
    converted,
    encoded,
    labelled,
    of,
    png16,
    request,
)

pytestmark = pytest.mark.slow


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
