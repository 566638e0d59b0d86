"""Probes: that answers come from the engine, are the same each time, and depend on nothing else.

The other gates compare each answer with a result that the same server gave a moment before. A
server that keeps answers, or whose answers depend on what came before or beside an image, can pass
them all; these requests are made so that it cannot.
"""

import random
import statistics
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
from pydantic import BaseModel

from deployments import records
from models.images import decode
from qualification.client import Client
from qualification.datasets.coco import DatasetImage
from qualification.evidence import InvalidResponse, Seen, WireBox, difference, parse_response
from qualification.gates import Gate

ROUNDS = 6  # each of two fresh images and one that is sent again and again
NOISE_PX = 16  # side of the noise that makes an image one that was never seen
SLOWEST = 0.5  # a repeated image takes at least this share of a fresh one's time
IMAGES = 8  # of the dataset, sent alone, in another order and together
MAX_PIXELS = 200_000_000


class Sent(BaseModel):
    """One request. records: the server's, under its id."""

    request_id: str
    images: list[str]
    status: int
    body: str
    client_ms: float
    records: list[dict[str, Any]] = []


class ProbeEvidence(BaseModel):
    """What was sent and answered, in order within each list.

    fresh: an image of the dataset with noise in a corner, other noise each time. repeated: one of
    these again and again. mixed: images of the dataset, one or several a request.
    """

    fresh: list[Sent]
    repeated: list[Sent]
    mixed: list[Sent]


def run(
    *,
    url: str,
    model: str,
    images: Sequence[DatasetImage],
    max_images: int,
    progress: Callable[[int, int], None],
) -> ProbeEvidence:
    """Send the probes over HTTP, one request after the other.

    max_images: that the server takes in one request.
    """
    started = time.time()
    client = Client(url)
    evidence = ProbeEvidence(fresh=[], repeated=[], mixed=[])

    def send(names: list[str], encoded: list[bytes]) -> Sent:
        request_id = f"probe-{uuid.uuid4().hex}"
        start = time.perf_counter()
        status, body = client.infer(model, encoded, request_id)
        client_ms = (time.perf_counter() - start) * 1e3
        return Sent(
            request_id=request_id,
            images=names,
            status=status,
            body=body.decode(errors="replace"),
            client_ms=client_ms,
        )

    fresh = noisy(images[0])
    name = images[0].name
    again = fresh()
    for done in range(ROUNDS):
        progress(done, ROUNDS + 1)
        # in turns, so that whatever else the machine does meets both alike
        evidence.fresh += [send([name], [fresh()]) for _ in range(2)]
        send([name], [again])  # what remembers one image alone has forgotten this one
        evidence.repeated += [send([name], [again]) for _ in range(2)]
    progress(ROUNDS, ROUNDS + 1)
    files = {image.name: image.path.read_bytes() for image in images[:: -(-len(images) // IMAGES)]}
    for names in orders(list(files), max_images):
        evidence.mixed.append(send(names, [files[name] for name in names]))
    client.close()
    sent = {one.request_id: one for one in evidence.fresh + evidence.repeated + evidence.mixed}
    for request_id, found in records.by_id(sent, since=started).items():
        sent[request_id].records = found
    return evidence


def orders(names: list[str], most: int) -> list[list[str]]:
    """Requests by their images' names: alone and backwards, then several in each, at most `most`,
    in three orders."""
    shuffled = random.Random(1).sample(names, len(names))
    together = [
        order[start : start + size]
        for order, size in ((names, most), (names[::-1], most), (shuffled, min(3, most)))
        for start in range(0, len(order), size)
    ]
    return [[name] for name in reversed(names)] + together


def gates(native: Sequence[Seen], evidence: ProbeEvidence) -> list[Gate]:
    """Three gates: no answer out of a cache, the same bits each time, the same in any company."""
    return [_no_cache(evidence), _repeatable(evidence), _any_order(native, evidence)]


def _no_cache(evidence: ProbeEvidence) -> Gate:
    timed = [*evidence.fresh, *evidence.repeated]
    problems = [
        f"request {one.request_id}: status {one.status}, {len(one.records)} server records"
        for one in timed
        if one.status != 200 or len(one.records) != 1
    ]
    measured: dict[str, float | int | str | bool | None] = {"requests": len(timed)}
    needed = f"a repeated image takes at least {SLOWEST:g} of a fresh one's time, and its own"
    if problems or not timed:
        detail = "; ".join(problems[:3])
        return Gate(name="no-cache", passed=False, measured=measured, needed=needed, detail=detail)
    ratios = {}
    for clock in ("client", "task_call_wall", "engine"):
        fresh, repeated = (
            statistics.median(_milliseconds(one, clock) for one in part)
            for part in (evidence.fresh, evidence.repeated)
        )
        ratios[clock] = repeated / fresh
        measured |= {f"{clock}_fresh_ms": fresh, f"{clock}_repeated_ms": repeated}
        if ratios[clock] < SLOWEST:
            problems.append(f"{clock}: {repeated:.2f} ms repeated, {fresh:.2f} ms fresh")
    # clocks of two calls never agree to the last digit; those of a stored result do
    clocks = Counter(repr(one.records[0]["tasks"]) for one in timed)
    if replayed := sum(count - 1 for count in clocks.values()):
        problems.append(f"{replayed} answers report the very times of another")
    return Gate(
        name="no-cache",
        passed=not problems,
        measured=measured | {"replayed": replayed},
        needed=needed,
        detail="; ".join(problems) or f"passes up to a bound of {min(ratios.values()):.2f}",
    )


def _repeatable(evidence: ProbeEvidence) -> Gate:
    answers = [_answer(one) for one in evidence.repeated]
    problems = []
    for answer in answers:
        if isinstance(answer, str):
            problems.append(answer)
        elif not isinstance(answers[0], str):
            problem = difference(answers[0][0], answer[0])
            problems += [problem] if problem else []
    return Gate(
        name="repeatable",
        passed=bool(answers) and not problems,
        measured={"repeats": len(answers), "identical": len(answers) - len(problems)},
        needed="the same image gives the same boxes to the last bit each time",
        detail="; ".join(problems[:3]),
    )


def _any_order(native: Sequence[Seen], evidence: ProbeEvidence) -> Gate:
    expected = {seen.image: seen.wire_boxes() for seen in native}
    problems, images = [], 0
    for one in evidence.mixed:
        images += len(one.images)
        answer = _answer(one)
        company = f"beside {len(one.images) - 1} others" if len(one.images) > 1 else "alone"
        if isinstance(answer, str):
            problems += [f"{name} {company}: {answer}" for name in one.images]
            continue
        for name, boxes in zip(one.images, answer, strict=True):
            problem = difference(expected[name], boxes)
            if problem is not None:
                problems.append(f"{name} {company}: {problem}")
    return Gate(
        name="any-order",
        passed=bool(images) and not problems,
        measured={
            "requests": len(evidence.mixed),
            "images": images,
            "identical": images - len(problems),
        },
        needed="in any order and any company the same boxes as in the native result",
        detail="; ".join(problems[:3]),
    )


def _answer(one: Sent) -> list[list[WireBox]] | str:
    """Each image's boxes, or a sentence where there are none."""
    if one.status != 200:
        return f"status {one.status}"
    try:
        return parse_response(one.body.encode(), len(one.images))
    except InvalidResponse as error:
        return str(error)


def _milliseconds(one: Sent, clock: str) -> float:
    if clock == "client":
        return one.client_ms
    (task,) = one.records[0]["tasks"]
    found: float = (
        task["task_call_wall_ms"] if clock == "task_call_wall" else task["stages_ms"][clock]
    )
    return found


def noisy(image: DatasetImage) -> Callable[[], bytes]:
    """Makes JPEGs of the image's size, each with noise in its corner that no other has."""
    pixels = decode(image.path.read_bytes(), MAX_PIXELS)
    generator = np.random.default_rng()  # not seeded: an earlier run's images were seen

    def fresh() -> bytes:
        changed = pixels.copy()
        corner = changed[:NOISE_PX, :NOISE_PX]
        corner[:] = generator.integers(0, 256, corner.shape, np.uint8)
        _, encoded = cv2.imencode(".jpg", cv2.cvtColor(changed, cv2.COLOR_RGB2BGR))
        return encoded.tobytes()

    return fresh
