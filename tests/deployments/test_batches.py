"""Batches in the live application: many clients at once, two replicas, and every answer right."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

from models import home
from qualification.client import Client
from qualification.evidence import parse_response
from tests.conftest import Application

CLIENTS, REQUESTS = 16, 96
MODEL = "yolox-batched"

pytestmark = pytest.mark.slow


def test_answers_in_batches_are_those_of_the_model_that_has_none(
    application: Application, native: Any, data: Path
) -> None:
    paths = sorted((data / "coco128" / "images").glob("*.jpg"))[:12]
    images = [path.read_bytes() for path in paths]
    expected = [
        native.detect("yolox-nano", path.name, image).wire_boxes()
        for path, image in zip(paths, images, strict=True)
    ]
    args = {"checkpoint": "yolox-nano", "max_batch": 4, "replicas": 2, "resources": {"cpus": 1}}
    assert application.deploy({MODEL: args})[MODEL]["ready"]
    try:
        client = Client(application.url)

        def ask(number: int) -> bool:
            place = number % len(images)
            status, body = client.infer(MODEL, [images[place]], f"batched-{number}")
            return status == 200 and parse_response(body) == [expected[place]]

        with ThreadPoolExecutor(CLIENTS) as threads:
            assert all(threads.map(ask, range(REQUESTS)))
        client.close()
    finally:
        application.remove(MODEL)
    tasks = [task for record in records() for task in record["tasks"]]
    assert len(tasks) == REQUESTS
    assert {task["batch"] for task in tasks} & {2, 3, 4}
    assert max(task["batch"] for task in tasks) <= 4
    assert len({task["replica"] for task in tasks}) == 2


def test_a_model_whose_batches_cannot_be_is_not_served_and_says_why(
    application: Application,
) -> None:
    """More canvases than ongoing requests would never fill: refused before anything starts."""
    args = {"checkpoint": "yolox-nano", "max_batch": 8, "max_ongoing_requests": 2}
    entry = application.deploy({"contradictory": args})["contradictory"]
    application.remove("contradictory")
    assert not entry["ready"]
    assert "max_batch is above max_ongoing_requests" in entry["reason"]


def records() -> list[dict[str, Any]]:
    lines = [
        orjson.loads(line)
        for path in (home.home() / "requests").glob("*.jsonl")
        for line in path.read_bytes().splitlines()
    ]
    return [line for line in lines if line["id"].startswith("batched-")]
