"""One model's scaling and deadline in the live application, each by what its clients see."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from qualification.client import Client
from qualification.evidence import parse_response
from tests.conftest import Application

IMAGE = "000000000154.jpg"
LIMIT_S = 60
CLIENTS = 2

pytestmark = pytest.mark.slow


@pytest.fixture
def client(application: Application) -> Iterator[Client]:
    found = Client(application.url)
    yield found
    found.close()


@pytest.fixture
def picture(data: Path) -> bytes:
    return (data / "coco128" / "images" / IMAGE).read_bytes()


def test_a_model_scaled_to_zero_is_listed_as_it_was_and_its_first_image_is_answered(
    application: Application, client: Client, native: Any, picture: bytes
) -> None:
    name = "sleeper"
    args = {
        "checkpoint": "yolox-nano",
        "autoscaling": {"min_replicas": 0, "max_replicas": 1, "downscale_delay_s": 0},
        "resources": {"cpus": 0.5},
    }
    awake = application.deploy({name: args})[name]
    try:
        assert awake["ready"]
        asleep = until(client, name, lambda entry: entry["replicas"] == 0)
        assert asleep["ready"]
        assert asleep["bundle_digest"] == awake["bundle_digest"]
        status, _ = client.get("/v1/health/ready")
        assert status == 200
        # looking wakes nothing
        assert entry_of(client, name)["replicas"] == 0

        status, body = client.infer(name, [picture], "woken-1")
        assert status == 200
        expected = native.detect("yolox-nano", IMAGE, picture).wire_boxes()
        assert parse_response(body) == [expected]
        until(client, name, lambda entry: entry["replicas"] == 0)
    finally:
        application.remove(name)


def test_a_models_own_deadline_is_kept_and_is_nobody_elses(
    application: Application, client: Client, picture: bytes
) -> None:
    name = "hurried"
    args = {"checkpoint": "yolox-nano", "deadline_s": 0.001, "resources": {"cpus": 0.5}}
    assert application.deploy({name: args})[name]["config"]["deadline_s"] == 0.001
    try:
        status, body = client.infer(name, [picture], "hurried-1")
        assert status == 504
        assert b"no answer within 0.001 s, the deadline of hurried" in body
        assert client.infer("yolox-nano", [picture], "hurried-2")[0] == 200
    finally:
        application.remove(name)


def test_a_changed_model_is_replaced_without_a_lost_request(
    application: Application, client: Client, native: Any, picture: bytes
) -> None:
    """While clients ask: a higher threshold, then a checkpoint that is none."""
    name = "changing"
    args = {"checkpoint": "yolox-nano", "resources": {"cpus": 0.5}}
    before = native.detect("yolox-nano", IMAGE, picture).wire_boxes()
    lowest, second, _ = sorted(box[-1] for box in before)
    threshold = (lowest + second) / 2
    application.deploy({name: args})
    try:
        with asked(application.url, name, picture) as answers:
            application.deploy({name: args | {"threshold": threshold}})
            settled(client, name, lambda entry: entry["config"]["threshold"] == threshold)
            _, body = client.infer(name, [picture], "changed")
        (after,) = parse_response(body)
        assert len(after) == 2
        assert {status for status, _ in answers} == {200}
        seen = [parse_response(body) for _, body in answers]
        assert [before] in seen
        assert all(each in ([before], [after]) for each in seen)

        with asked(application.url, name, picture) as answers:
            application.deploy({name: {"checkpoint": "absent"}})
            entry = until(client, name, lambda entry: "absent" in entry.get("reason", ""))
        assert entry["ready"]
        assert entry["reason"].endswith("1 of its replicas serve meanwhile")
        assert answers
        assert all(status == 200 and parse_response(body) == [after] for status, body in answers)
    finally:
        application.remove(name)


@contextmanager
def asked(url: str, name: str, picture: bytes) -> Iterator[list[tuple[int, bytes]]]:
    """The answers that CLIENTS get meanwhile, each asking again as soon as it is answered."""
    answers: list[tuple[int, bytes]] = []
    over = threading.Event()

    def ask() -> None:
        client = Client(url)
        while not over.is_set():
            answers.append(client.infer(name, [picture]))
        client.close()

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join()


def settled(client: Client, name: str, holds: Any) -> None:
    until(client, name, lambda entry: "reason" not in entry and holds(entry))


def entry_of(client: Client, name: str) -> dict[str, Any]:
    status, document = client.get("/v1/models")
    assert status == 200
    return next(entry for entry in document["data"] if entry["id"] == name)


def until(client: Client, name: str, holds: Any) -> dict[str, Any]:
    """The model's entry in /v1/models, once it is as asked."""
    end = time.monotonic() + LIMIT_S
    while not holds(entry := entry_of(client, name)):
        assert time.monotonic() < end, (entry.get("reason"), entry["config"])
        time.sleep(0.2)
    return entry
