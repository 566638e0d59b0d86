"""What a TensorRT build says: warnings and errors collected, progress logged, Ctrl-C obeyed.

A build takes minutes in which TensorRT answers with None and leaves the reason to its logger; so
the logger's errors are kept for the sentence that the caller gets.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from models.tensorrt_library import API

if TYPE_CHECKING:
    import tensorrt as trt

Log = Callable[[str], None]

INTERVAL_S = 5.0  # at most one line of progress in this time


class Messages:
    """Warnings and errors in the order they came, each once."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.errors: list[str] = []

    @property
    def last_error(self) -> str:
        return self.errors[-1] if self.errors else "it gave no reason"

    def logger(self, api: API) -> "trt.ILogger":
        """An `ILogger` that collects here; whoever is given it keeps it alive."""
        severity = api.ILogger.Severity
        kept = {
            severity.WARNING: self.warnings,
            severity.ERROR: self.errors,
            severity.INTERNAL_ERROR: self.errors,
        }

        class Logger(api.ILogger):  # type: ignore[name-defined,misc,unused-ignore]
            def log(self, severity: "trt.ILogger.Severity", msg: str) -> None:
                collected = kept.get(severity)
                if collected is not None and msg not in collected:
                    collected.append(msg)

        return Logger()


class Progress:
    """Tells `log` how far a build is, one line in `INTERVAL_S` seconds.

    stopped_by: what `log` or Ctrl-C raised. TensorRT cannot pass an exception on: the build is
    told to stop, ends without an engine, and the caller raises it then.
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
            self.stopped_by = error
        return self.stopped_by is None
