"""Probes: what each gate lets pass and what it does not."""

from collections import Counter
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from deployments import wire
from models.images import decode
from qualification import probes
from qualification.datasets.coco import DatasetImage
from qualification.gates import Gate
from qualification.probes import ProbeEvidence, Sent
from tests.qualification.test_gates import answer, seen

NATIVE = [seen("a.jpg"), seen("b.jpg", score=0.625), seen("c.jpg", dogs=2)]


def sent(place: int, *, client: float = 20, wall: float = 12, engine: float = 10, **changes: Any):
    """A request whose clocks are a little its own."""
    own = place / 1000
    task = {"task_call_wall_ms": wall + own, "stages_ms": {"engine": engine + own}}
    fields: dict[str, Any] = {
        "request_id": f"probe-{place}",
        "images": ["a.jpg"],
        "status": 200,
        "body": answer(NATIVE[0]).decode(),
        "client_ms": client + own,
        "records": [{"tasks": [task]}],
    }
    return Sent(**(fields | changes))


def together(*names: str, wrong: str | None = None) -> str:
    """An answer about several images, that about `wrong` with another image's boxes."""
    by_name = {one.image: one for one in NATIVE}
    found = [by_name["b.jpg" if name == wrong else name] for name in names]
    return wire.response("m", [(one.detections, one.labels) for one in found], 0.1).decode()


def evidence(**changes: Any) -> ProbeEvidence:
    fields: dict[str, Any] = {
        "fresh": [sent(place) for place in range(12)],
        "repeated": [sent(place) for place in range(12, 24)],
        "mixed": [
            *(
                sent(30 + n, images=[s.image], body=answer(s).decode())
                for n, s in enumerate(NATIVE)
            ),
            sent(40, images=["c.jpg", "a.jpg"], body=together("c.jpg", "a.jpg")),
        ],
    }
    return ProbeEvidence(**(fields | changes))


def judge(found: ProbeEvidence) -> dict[str, Gate]:
    return {gate.name: gate for gate in probes.gates(NATIVE, found)}


def repeated(**clocks: Any) -> list[Sent]:
    return [sent(place, **clocks) for place in range(12, 24)]


def test_a_sound_server_passes_and_the_bound_it_would_pass_is_stated() -> None:
    judged = judge(evidence())
    assert all(gate.passed for gate in judged.values()), judged
    assert judged["no-cache"].detail == "passes up to a bound of 1.00"
    assert judged["repeatable"].measured == {"repeats": 12, "identical": 12}
    assert judged["any-order"].measured == {"requests": 4, "images": 5, "identical": 5}


@pytest.mark.parametrize("ratio", [0.51, 1.0, 3.0])
def test_noise_of_the_machine_does_not_fail(ratio: float) -> None:
    slow = repeated(client=20 * ratio, wall=12 * ratio, engine=10 * ratio)
    assert judge(evidence(repeated=slow))["no-cache"].passed


@pytest.mark.parametrize(
    ("again", "detail"),
    [
        (repeated(client=9), "client: 9.02 ms repeated, 20.01 ms fresh"),
        (repeated(wall=5), "task_call_wall: 5.02 ms repeated, 12.01 ms fresh"),
        (repeated(engine=0.01), "engine: 0.03 ms repeated, 10.01 ms fresh"),
        ([sent(12)] * 12, "11 answers report the very times of another"),
        ([*repeated()[1:], sent(9, status=503)], "request probe-9: status 503, 1 server records"),
        ([*repeated()[1:], sent(9, records=[])], "request probe-9: status 200, 0 server records"),
    ],
    ids=["client", "Task call", "engine", "replayed", "refused", "never reached the server"],
)
def test_an_answer_from_a_cache_fails(again: list[Sent], detail: str) -> None:
    gate = judge(evidence(repeated=again))["no-cache"]
    assert (gate.passed, gate.detail) == (False, detail)


def test_answers_that_differ_in_the_last_bit_are_not_repeatable() -> None:
    other = answer(seen("a.jpg", score=float(np.nextafter(np.float32(0.75), np.float32(1)))))
    gate = judge(evidence(repeated=[*repeated()[1:], sent(12, body=other.decode())]))["repeatable"]
    assert (gate.passed, gate.measured["identical"]) == (False, 11)


@pytest.mark.parametrize(
    ("one", "detail"),
    [
        (sent(50, images=["a.jpg"], body=answer(NATIVE[1]).decode()), "a.jpg alone: native has"),
        (
            sent(50, images=["c.jpg", "a.jpg"], body=together("c.jpg", "a.jpg", wrong="a.jpg")),
            "a.jpg beside 1 others: native has",
        ),
        (
            sent(50, images=["c.jpg", "a.jpg"], body=together("a.jpg", "c.jpg")),
            "c.jpg beside 1 others: 2 boxes, native has 3",
        ),
        (
            sent(50, images=["c.jpg", "a.jpg"], body=together("c.jpg")),
            "c.jpg beside 1 others: `data` must be a list of 2 items",
        ),
        (sent(50, status=500), "a.jpg alone: status 500"),
    ],
    ids=["alone", "in company", "swapped", "one missing", "refused"],
)
def test_an_answer_that_depends_on_order_or_company_fails(one: Sent, detail: str) -> None:
    gate = judge(evidence(mixed=[*evidence().mixed, one]))["any-order"]
    assert not gate.passed
    assert gate.detail.startswith(detail)


def test_no_evidence_passes_nothing() -> None:
    judged = judge(ProbeEvidence(fresh=[], repeated=[], mixed=[]))
    assert not any(gate.passed for gate in judged.values())


@pytest.mark.parametrize("most", [1, 2, 8, 32])
def test_each_image_is_sent_alone_and_in_company_as_far_as_the_server_takes_it(most: int) -> None:
    names = [f"{index}.jpg" for index in range(8)]
    requests = probes.orders(names, most)
    assert Counter(name for request in requests for name in request) == dict.fromkeys(names, 4)
    assert requests[:8] == [[name] for name in reversed(names)]
    assert max(map(len, requests)) == min(most, 8)


def test_a_fresh_image_is_one_that_was_never_seen_and_of_the_same_size(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    cv2.imwrite(str(path), np.full((40, 60, 3), 200, np.uint8))
    fresh = probes.noisy(DatasetImage(1, "a.png", path))
    made = [decode(fresh(), 10**6) for _ in range(5)]
    assert {image.shape for image in made} == {(40, 60, 3)}
    assert len({image.tobytes() for image in made}) == 5
