"""`EngineQueue`: prepared canvases wait here for the engine, each slot of which has a thread.

A thread takes the canvas that has waited longest and, up to the batch size, those that wait behind
it: nothing is ever waited for, so a lone request is as fast as without batches. What was cancelled
while it waited is left out.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from models.batching import split
from models.engine import Engine

Made = TypeVar("Made")
Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Inference(Generic[Made]):
    """What became of one canvas.

    made: by its `finish`. engine_ms: of the engine's call, which its whole batch shares. ended:
    `time.perf_counter` when `finish` was through. batch: canvases in that call.
    """

    made: Made
    engine_ms: float
    finish_ms: float
    ended: float
    batch: int


@dataclass(frozen=True)
class _Job(Generic[Made]):
    canvas: np.ndarray
    finish: Callable[[Outputs], Made]
    done: "Future[Inference[Made]]"


class EngineQueue(Generic[Made]):
    """Runs an engine, which it owns from here on.

    first: a canvas that each slot infers before anything else: the first inference allocates and
        plans, and so does a thread's, and no client should wait for that.

    Raises:
        Exception: what the engine raised on it.
    """

    def __init__(self, engine: Engine, first: np.ndarray) -> None:
        self._engine = engine
        warm: list[Future[None]] = [Future() for _ in range(engine.slots)]
        self._waiting: queue.SimpleQueue[_Job[Made] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(
                target=self._work, args=(slot, first, done), name=f"engine_{slot}", daemon=True
            )
            for slot, done in enumerate(warm)
        ]
        for thread in self._threads:
            thread.start()
        for done in warm:
            done.result()

    def submit(
        self, canvas: np.ndarray, finish: Callable[[Outputs], Made]
    ) -> "Future[Inference[Made]]":
        """Queue one canvas, uint8 [1, H, W, 3]. finish: makes the result of its outputs, in the
        engine's thread, because the next inference overwrites them. What the engine or it raises is
        the future's; cancelling the future before the engine has begun takes the canvas out."""
        job = _Job(canvas, finish, Future())
        self._waiting.put(job)
        return job.done

    def close(self) -> None:
        """Finish what has begun or waits, then give the engine back."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        self._engine.close()

    def _work(self, slot: int, first: np.ndarray, warm: "Future[None]") -> None:
        try:
            self._engine.infer(first, slot)
        except Exception as error:
            warm.set_exception(error)
            return
        warm.set_result(None)
        closing = False
        while not closing:
            job = self._waiting.get()
            jobs: list[_Job[Made]] = []
            while job is not None:
                if job.done.set_running_or_notify_cancel():
                    jobs.append(job)
                if len(jobs) == self._engine.max_batch:
                    break
                try:
                    job = self._waiting.get_nowait()
                except queue.Empty:
                    break
            closing = job is None
            if jobs:
                self._run(jobs, slot)

    def _run(self, jobs: list[_Job[Made]], slot: int) -> None:
        begun = time.perf_counter()
        try:
            alone = len(jobs) == 1
            canvases = [job.canvas for job in jobs]
            outputs = self._engine.infer(canvases[0] if alone else np.concatenate(canvases), slot)
        except Exception as error:
            for job in jobs:
                job.done.set_exception(error)
            return
        engine_ms = (time.perf_counter() - begun) * 1e3
        for index, job in enumerate(jobs):
            start = time.perf_counter()
            try:
                made = job.finish(split(outputs, index))
            except Exception as error:
                job.done.set_exception(error)
                continue
            ended = time.perf_counter()
            finish_ms = (ended - start) * 1e3
            job.done.set_result(Inference(made, engine_ms, finish_ms, ended, len(jobs)))
