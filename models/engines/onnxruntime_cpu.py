"""ONNX Runtime on the CPU: the engine of a machine without a GPU."""

from pathlib import Path

import numpy as np

from models.engine import EngineName
from models.engines.onnxruntime_session import CPU, open_session
from models.graph import IMAGE, OUTPUTS


class OnnxRuntimeEngine:
    """One session.

    threads: worker threads of one inference. The same bundle, thread count and machine give the
    same bits, which native/HTTP identity relies on.

    Raises:
        BundleError: ONNX Runtime cannot load the file.
    """

    name: EngineName = "onnxruntime"
    slots = 1

    def __init__(self, path: Path, *, threads: int) -> None:
        self._session = open_session(path, CPU, {}, threads)

    @property
    def canvas(self) -> tuple[int, int]:
        """(height, width) of the input in pixels."""
        _, height, width, _ = self._session.get_inputs()[0].shape
        return height, width

    def infer(self, image: np.ndarray, slot: int = 0) -> dict[str, np.ndarray]:
        return dict(zip(OUTPUTS, self._session.run(OUTPUTS, {IMAGE: image}), strict=True))

    def close(self) -> None:
        del self._session
