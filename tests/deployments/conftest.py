"""The live application as tests/deployments/attacker.py sees it."""

import time
from pathlib import Path

import pytest

from tests.deployments.attacker import (
    MODEL,
    ZEBRAS,
    Server,
    of,
)


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
