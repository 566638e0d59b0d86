"""Engines: run tensors, know nothing of images.

One small interface, so that a family sees no difference between back ends.
"""

import os
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np

from models.errors import BundleError
from models.graph import IMAGE, OUTPUTS
from models.precision import Precision

# ONNX Runtime queues usage events under the user's cache otherwise; it reads this when imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime  # type: ignore[import-untyped]

EngineName = Literal["onnxruntime"]
ENGINE_NAMES: tuple[EngineName, ...] = get_args(EngineName)


def resolve(requested: Literal["auto"] | EngineName) -> EngineName:
    """The engine that `engine` of serve_config.yaml means on this machine."""
    return "onnxruntime" if requested == "auto" else requested


def resolve_precision(
    requested: Literal["auto"] | Precision, engine: EngineName, checkpoint: Precision
) -> Precision:
    """What `precision` of serve_config.yaml means for that engine: the checkpoint's own on a GPU;
    on the CPU, which ONNX Runtime has no half kernels for, fp32."""
    if requested != "auto":
        return requested
    return "fp32" if engine == "onnxruntime" else checkpoint


class Engine(Protocol):
    """Runs one canvas at a time; not thread-safe, so each replica gives it a thread of its own."""

    name: str

    def infer(self, image: np.ndarray) -> dict[str, np.ndarray]:
        """image: uint8 [1, H, W, 3] RGB canvas. Returns `boxes` float32 [1, A, 4] xyxy in canvas
        pixels, `scores` float32 [1, A] and `class_ids` int32 [1, A]."""
        ...


class OnnxRuntimeEngine:
    """ONNX Runtime on the CPU.

    threads: worker threads of one inference. The same bundle, thread count and machine give the
    same bits, which native/HTTP identity relies on.

    Raises:
        BundleError: ONNX Runtime cannot load the file.
    """

    name = "onnxruntime"

    def __init__(self, path: Path, *, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime has no common base below Exception
            raise BundleError(f"ONNX Runtime cannot load {path.name}: {error}") from error

    @property
    def canvas(self) -> tuple[int, int]:
        """(height, width) of the input in pixels."""
        _, height, width, _ = self._session.get_inputs()[0].shape
        return height, width

    def infer(self, image: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(OUTPUTS, self._session.run(OUTPUTS, {IMAGE: image}), strict=True))


def engine_version(name: str) -> str:
    """Version of the library behind the engine of that name."""
    versions: dict[str, str] = {"onnxruntime": onnxruntime.__version__}
    return versions[name]
