"""The published pipeline of an archive, in a process and an environment of its own.

Why: the reference must share no code with the served path, and serving needs neither torch nor
ultralytics. DETSERVE_REFERENCE_PYTHON names the Python that has both; without it, this one.
"""

import json
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from models.detections import Detections
from models.errors import BundleError

CANVAS = (640, 640)  # what all of them were trained and published at: `imgsz` of the package


class UltralyticsReference:
    """ultralytics' own model, letterbox and NMS (reference_worker.py) behind a pipe.

    labels: where the checkpoint names none itself.
    architecture: for safetensors, which carry none.

    Raises:
        BundleError: the environment cannot run it.
    """

    def __init__(
        self,
        checkpoint: Path,
        labels: Sequence[str],
        architecture: Mapping[str, Any] | None = None,
    ) -> None:
        root = str(Path(__file__).parents[2])
        python = os.environ.get("DETSERVE_REFERENCE_PYTHON", sys.executable)
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (lives as long as the process)
        command = [python, "-m", "models.ultralytics.reference_worker", str(checkpoint)]
        command += map(str, CANVAS)
        if architecture is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as plan:
                json.dump(architecture, plan)
            command.append(plan.name)
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self._worker = subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        weakref.finalize(self, _end, self._worker)
        self.labels = self._answer()["labels"] or list(labels)
        if architecture is not None:
            os.unlink(plan.name)

    def __call__(self, image: bytes, threshold: float) -> Detections:
        assert self._worker.stdin is not None
        request = json.dumps({"bytes": len(image), "threshold": threshold})
        self._worker.stdin.write(request.encode() + b"\n" + image)
        self._worker.stdin.flush()
        found = self._answer()
        return Detections(
            np.array(found["boxes"], np.float32).reshape(-1, 4),
            np.array(found["scores"], np.float32),
            np.array(found["class_ids"], np.int32),
            found["height"],
            found["width"],
        )

    def _answer(self) -> dict[str, Any]:
        assert self._worker.stdout is not None
        line = self._worker.stdout.readline()
        if not line:
            self._worker.wait()
            self._said.seek(0)
            said = self._said.read().strip().splitlines() or ["it said nothing"]
            raise BundleError(
                f"the reference ended: {said[-1]} (it needs ultralytics and torch in the Python "
                f"that DETSERVE_REFERENCE_PYTHON names)"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


def _end(worker: "subprocess.Popen[bytes]") -> None:
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            stream.close()  # standard input at its end is the worker's sign to leave
    worker.wait()
