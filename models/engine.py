"""Engines: run tensors, know nothing of images.

One small interface, so that a family sees no difference between back ends; each of them is a module
of models/engines, and models/engines/choice.py picks the one that a machine can run.
"""

from typing import Literal, Protocol, get_args

import numpy as np

EngineName = Literal["onnxruntime", "onnxruntime-cuda", "tensorrt"]

ENGINE_NAMES: tuple[EngineName, ...] = get_args(EngineName)
# the file of a bundle that an engine loads
ENGINE_FILES: dict[EngineName, str] = {
    "onnxruntime": "engine.onnx",
    "onnxruntime-cuda": "engine.onnx",
    "tensorrt": "engine.plan",
}


class Engine(Protocol):
    """Runs one canvas, or a batch of them, at a time in each of its slots.

    max_batch: canvases that it takes at once.
    slots: places for canvases that run at the same time. A slot is not thread-safe: each has a
        thread of its own, and what it returned is overwritten by its next inference.
    """

    name: EngineName
    slots: int
    max_batch: int

    def infer(self, image: np.ndarray, slot: int = 0) -> dict[str, np.ndarray]:
        """image: uint8 [N, H, W, 3] RGB canvases, N up to `max_batch`; slot: 0 to `slots` - 1.
        Returns `boxes` float32 [N, A, 4] xyxy in canvas pixels, `scores` float32 [N, A] and
        `class_ids` int32 [N, A]."""
        ...

    def close(self) -> None:
        """Give everything back; no slot may be running, and none runs after it."""
        ...
