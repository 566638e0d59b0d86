"""ONNX Runtime on the CPU: the engine of a machine without a GPU."""

from pathlib import Path

import numpy as np
import onnx

from models.batching import batched, prove
from models.engine import EngineName
from models.engines.onnxruntime_session import CPU, open_session
from models.graph import IMAGE, OUTPUTS


class OnnxRuntimeEngine:
    """One session.

    max_batch: above 1 the graph's batch is freed (models/batching.py), and each size is proved.
    threads: worker threads of one inference. The same bundle, thread count and machine give the
    same bits, which native/HTTP identity relies on.

    Raises:
        BundleError: ONNX Runtime cannot load the file, or a batch would change an answer.
    """

    name: EngineName = "onnxruntime"
    slots = 1

    def __init__(self, path: Path, *, threads: int, max_batch: int = 1) -> None:
        self.max_batch = max_batch
        graph = batched(onnx.load(path)).SerializeToString() if max_batch > 1 else path
        self._session = open_session(graph, CPU, {}, threads)
        if max_batch > 1:
            prove(self, self.canvas, max_batch)

    @property
    def canvas(self) -> tuple[int, int]:
        """(height, width) of the input in pixels."""
        _, height, width, _ = self._session.get_inputs()[0].shape
        return height, width

    def infer(self, image: np.ndarray, slot: int = 0) -> dict[str, np.ndarray]:
        return dict(zip(OUTPUTS, self._session.run(OUTPUTS, {IMAGE: image}), strict=True))

    def close(self) -> None:
        del self._session
