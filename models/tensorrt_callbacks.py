"""What a TensorRT build says: warnings and errors collected, progress logged.

A build takes minutes in which TensorRT answers with None and leaves the reason to its logger; so
the logger's errors are kept for the sentence that the caller gets.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from models.tensorrt_library import API, LibraryName, load

if TYPE_CHECKING:
    import tensorrt as trt

Log = Callable[[str], None]

INTERVAL_S = 5.0  # at most one line of progress in this time


_listeners: list["Messages"] = []


@cache
def logger(name: LibraryName) -> "trt.ILogger":
    """The library's logger. TensorRT keeps the first it is given as long as anything that was made
    with it lives, and ignores any other: a process has one, for builders and runtimes alike."""

    class Logger(load(name).api.ILogger):  # type: ignore[misc,unused-ignore]
        def log(self, severity: "trt.ILogger.Severity", msg: str) -> None:
            for messages in tuple(_listeners):
                messages.take(severity.name, msg)

    return Logger()


class Messages:
    """Warnings and errors in the order they came, each once, while `listening`.

    Of builds at the same time in one process each hears the others' too.
    """

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.errors: list[str] = []

    @property
    def last_error(self) -> str:
        return self.errors[-1] if self.errors else "it gave no reason"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Collect what the logger is told in here."""
        _listeners.append(self)
        try:
            yield
        finally:
            _listeners.remove(self)

    def take(self, severity: str, text: str) -> None:
        """severity: the name of an `ILogger.Severity`."""
        kept = {"WARNING": self.warnings, "ERROR": self.errors, "INTERNAL_ERROR": self.errors}
        if severity in kept and text not in kept[severity]:
            kept[severity].append(text)


class Progress:
    """Tells `log` how far a build is, one line in `INTERVAL_S` seconds.

    stopped_by: what `log` raised, or `stop` was given. TensorRT cannot pass an exception on: the
    build is told to stop, ends without an engine, and the caller raises it then.
    """

    def __init__(self, log: Log) -> None:
        self.stopped_by: BaseException | None = None
        self._log = log
        self._began = self._said = time.monotonic()
        self._steps: dict[str, int] = {}
        self._lock = threading.Lock()  # TensorRT calls from several threads

    def monitor(self, api: API) -> "trt.IProgressMonitor":
        """An `IProgressMonitor` that reports here."""
        progress = self

        class Monitor(api.IProgressMonitor):  # type: ignore[name-defined,misc,unused-ignore]
            def phase_start(self, phase_name: str, parent_phase: str, num_steps: int) -> None:
                progress._steps[phase_name] = num_steps

            def step_complete(self, phase_name: str, step: int) -> bool:
                return progress._step(phase_name, step + 1)

            def phase_finish(self, phase_name: str) -> None:
                pass

        return Monitor()

    def stop(self, why: BaseException) -> None:
        """End the build at its next step."""
        if self.stopped_by is None:
            self.stopped_by = why

    def _step(self, phase: str, done: int) -> bool:
        """False asks TensorRT to stop."""
        try:
            with self._lock:
                now = time.monotonic()
                if self.stopped_by is None and now - self._said >= INTERVAL_S:
                    self._said = now
                    total = self._steps.get(phase, done)
                    self._log(f"{phase}: {done} of {total}, {now - self._began:.0f} s so far")
        except BaseException as error:
            self.stop(error)
        return self.stopped_by is None
