"""`ProcessReference`: a published implementation in a process and an environment of its own.

Why a process: the reference must share no code with the served path, serving needs neither torch
nor the publishers' packages, and torch and onnxruntime in one process can end in a oneMKL error.
The other end of the pipes is worker.py.
"""

import contextlib
import json
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from models import errors
from models.detections import Detections
from models.errors import BundleError, DetserveError
from models.references.environment import cannot_run, reference_python

# Seconds that a worker has to leave in after its pipe was closed; it may be amid an image.
LEAVING_S = 10.0


class ProcessReference:
    """Detections from a pipeline that is loaded once. The process ends with this object, and
    with the process that holds it.

    pipeline: a file with `load(settings) -> (labels or None, detect)`; see worker.py.
    settings: what `load` is given; JSON.
    labels: by class id, where the published files name none themselves.

    Raises:
        BundleError: the environment cannot run it.
        DetserveError: what the pipeline refused its settings with.
    """

    def __init__(self, pipeline: Path, settings: Mapping[str, Any], labels: Sequence[str]) -> None:
        self._python = reference_python()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        worker = Path(__file__).with_name("worker.py")
        # -E and -P: nothing of this process's paths, which are of another environment
        command = [str(self._python), "-E", "-P", str(worker), str(pipeline)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
            )
        except OSError as error:
            raise cannot_run(self._python, str(error.strerror)) from error
        weakref.finalize(self, _end, self._process)
        self._ask(settings)
        self.labels: list[str] = self._answer()["labels"] or list(labels)

    def __call__(self, image: bytes, threshold: float) -> Detections:
        """As models/family.py's `Reference`.

        Raises:
            DamagedImage: the publisher's decoder refuses the image; others may follow.
            BundleError: the process ended.
        """
        self._ask({"bytes": len(image), "threshold": threshold}, image)
        found = self._answer()
        return Detections(
            boxes=np.array(found["boxes"], np.float32).reshape(-1, 4),
            scores=np.array(found["scores"], np.float32),
            class_ids=np.array(found["class_ids"], np.int32),
            height=found["height"],
            width=found["width"],
        )

    def _ask(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        with contextlib.suppress(BrokenPipeError):  # `_answer` says why the process ended
            pipe = _open(self._process.stdin)
            pipe.write(json.dumps(header).encode() + b"\n" + body)
            pipe.flush()

    def _answer(self) -> dict[str, Any]:
        line = _open(self._process.stdout).readline()
        if not line.endswith(b"\n"):
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" not in answer:
            return answer
        if answer["error"] == "ImportError":
            raise cannot_run(self._python, answer["said"])
        kind: type[DetserveError] = getattr(errors, answer["error"])
        raise kind(answer["said"])

    def _ended(self) -> BundleError:
        code = self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip().splitlines()
        last = said[-1] if said else "it said nothing"
        return BundleError(f"the reference's process ended with {code}: {last}")


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # both were asked for
    return pipe


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(BrokenPipeError):  # what it never read is still in the buffer
        _open(process.stdin).close()  # standard input at its end is the worker's sign to leave
    _open(process.stdout).close()
    try:
        process.wait(LEAVING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
