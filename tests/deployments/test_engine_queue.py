"""`EngineQueue`: what waits goes together, what was cancelled does not go, and nothing is lost."""

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import numpy as np
import pytest

from deployments.engine_queue import EngineQueue, Outputs
from models.engine import EngineName

CANVAS = np.zeros((1, 2, 2, 3), np.uint8)


class Held:
    """An engine that computes a canvas's sum, and only while it is let go."""

    name: EngineName = "onnxruntime"
    slots = 1

    def __init__(self, max_batch: int) -> None:
        self.max_batch = max_batch
        self.batches: list[int] = []
        self.begun, self.let_go = threading.Semaphore(0), threading.Semaphore(1)  # the warm-up
        self.closed = False

    def infer(self, image: np.ndarray, slot: int = 0) -> Outputs:
        self.begun.release()
        assert self.let_go.acquire(timeout=30)
        self.batches.append(len(image))
        if image.max() == 255:
            raise RuntimeError("the engine raises")
        return {"scores": image.sum(axis=(1, 2, 3))[:, None]}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def held() -> Held:
    return Held(max_batch=3)


@pytest.fixture
def waiting(held: Held) -> Iterator[EngineQueue[int]]:
    """Its engine is at work on one canvas, and is let go a hundred times at the end."""
    made: EngineQueue[int] = EngineQueue(held, CANVAS)
    held.begun.acquire()
    held.batches.clear()
    first = made.submit(canvas(1), total)
    assert held.begun.acquire(timeout=30)
    yield made
    held.let_go.release(100)
    assert first.result(timeout=30).made == 12
    made.close()
    assert held.closed


def canvas(value: int) -> np.ndarray:
    return np.full_like(CANVAS, value)


def total(outputs: Outputs) -> int:
    (row,) = outputs["scores"]  # a batch of one
    return int(row[0])


def test_what_waits_goes_together_and_each_gets_its_own(held, waiting) -> None:
    rest = [waiting.submit(canvas(value), total) for value in range(2, 7)]
    held.let_go.release(100)
    found = [each.result(timeout=30) for each in rest]
    assert [each.made for each in found] == [12 * value for value in range(2, 7)]
    assert held.batches == [1, 3, 2]  # the lone one waited for nobody
    assert [each.batch for each in found] == [3, 3, 3, 2, 2]


def test_what_was_cancelled_while_it_waited_never_reaches_the_engine(held, waiting) -> None:
    rest = [waiting.submit(canvas(value), total) for value in (2, 3, 4)]
    assert rest[1].cancel()
    held.let_go.release(100)
    assert [rest[place].result(timeout=30).made for place in (0, 2)] == [24, 48]
    with pytest.raises(CancelledError):
        rest[1].result()
    assert held.batches == [1, 2]


def test_a_queue_of_nothing_but_cancelled_ones_goes_on(held, waiting) -> None:
    assert waiting.submit(canvas(2), total).cancel()
    held.let_go.release(100)
    assert waiting.submit(canvas(3), total).result(timeout=30).made == 36


def test_what_the_engine_raises_is_everybody_s_in_the_batch_and_nobody_s_after(
    held, waiting
) -> None:
    bad = [waiting.submit(canvas(value), total) for value in (2, 255, 3)]
    good = waiting.submit(canvas(4), total)
    held.let_go.release(100)
    for each in bad:
        with pytest.raises(RuntimeError, match="the engine raises"):
            each.result(timeout=30)
    assert good.result(timeout=30).made == 48


def test_an_answer_that_cannot_be_made_is_its_own_alone(held, waiting) -> None:
    def fails(outputs: Outputs) -> int:
        raise ValueError("no such box")

    bad, good = waiting.submit(canvas(2), fails), waiting.submit(canvas(3), total)
    held.let_go.release(100)
    with pytest.raises(ValueError, match="no such box"):
        bad.result(timeout=30)
    assert good.result(timeout=30).made == 36


def test_an_engine_that_does_not_run_at_all_is_said_at_the_start(held) -> None:
    with pytest.raises(RuntimeError, match="the engine raises"):
        EngineQueue(held, canvas(255))
