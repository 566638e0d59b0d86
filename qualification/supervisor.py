"""`Supervisor`: the script's side of the driver actor: every wait has a bound, and a driver that
dies is replaced by another that goes on from the saved stages.
"""

import hashlib
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from models.errors import QualificationError
from qualification.aiperf import Point
from qualification.driver import Driver
from qualification.stages import StageResult

POLL_S = 0.5
ANSWER_S = 60  # that a living driver takes for an answer at the very most
STALLED_S = 900  # without any progress after which a stage is given up
DRIVERS = 3  # that one stage may wear out

Log = Callable[[str], None]
Progress = Callable[[str, str, int, int], None]  # model, stage, done, total


class _Lost(Exception):
    """The driver died or does not answer."""


class Supervisor:
    """One driver at a time for a run's folder, which the caller holds the lock of.

    url: the application over HTTP. points: AIPerf's runs.
    """

    def __init__(
        self, url: str, folder: Path, points: Sequence[Point], log: Log, progress: Progress
    ) -> None:
        self._arguments = (url, str(folder), list(points))
        self._prefix = f"qualification-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
        self._log, self._progress = log, progress
        for name in ray.util.list_named_actors():
            if name.startswith(self._prefix):  # of a script that was killed
                ray.kill(ray.get_actor(name))
        self._driver = self._start()

    def stage(self, model: str, stage: str) -> StageResult:
        """One stage's result out of Ray's store.

        Raises:
            DetserveError: the stage could not run, and says why.
            Exception: what it raised unexpectedly.
        """
        for _ in range(DRIVERS):
            try:
                return self._stage(model, stage)
            except _Lost as lost:
                self._log(f"{model}: {stage}: the driver actor was lost ({lost}); starting another")
                self._replace()
        raise QualificationError(f"the driver actor was lost {DRIVERS} times in this stage")

    def describe(self, model: str) -> Any:
        """As `Driver.describe`."""
        for _ in range(DRIVERS):
            try:
                return _get(self._driver.describe.remote(model), ANSWER_S)
            except _Lost:
                self._replace()
        raise QualificationError(f"the driver actor was lost {DRIVERS} times")

    def close(self) -> None:
        """End the driver and what it runs."""
        ray.kill(self._driver)

    def _stage(self, model: str, stage: str) -> StageResult:
        pending = self._driver.stage.remote(model, stage)
        while not ray.wait([pending], timeout=POLL_S)[0]:
            done, total, still_s = _get(self._driver.progress.remote(), ANSWER_S)
            self._progress(model, stage, done, total)
            if still_s > STALLED_S:
                self._replace()  # what the stage runs ends with its driver
                raise QualificationError(f"nothing moved for {STALLED_S} s; the stage was given up")
        (reference,) = _get(pending, ANSWER_S)
        result: StageResult = _get(reference, ANSWER_S)
        return result

    def _replace(self) -> None:
        ray.kill(self._driver)
        self._driver = self._start()

    def _start(self) -> Any:
        # detached, because an ordinary actor and its objects die with the script that made it
        options: dict[str, Any] = {"num_cpus": 0, "lifetime": "detached"}
        name = f"{self._prefix}-{uuid.uuid4().hex[:8]}"
        return ray.remote(Driver).options(name=name, **options).remote(*self._arguments)


def _get(reference: "ray.ObjectRef[Any]", timeout_s: float) -> Any:
    """What the driver answers.

    Raises:
        _Lost: it is not there any more.
        Exception: what it raised.
    """
    try:
        return ray.get(reference, timeout=timeout_s)
    except RayTaskError as error:  # first: it is also an instance of its cause's class
        raise error.cause from error
    except RayActorError as error:
        raise _Lost("it died") from error
    except GetTimeoutError as error:
        raise _Lost("it does not answer") from error
    except RayError as error:
        raise _Lost(type(error).__name__) from error
