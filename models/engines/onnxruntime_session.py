"""ONNX Runtime itself: imported once, with its telemetry off, for the CPU and for CUDA."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import BundleError

# ONNX Runtime queues usage events under the user's cache otherwise; it reads this when imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as onnxruntime  # type: ignore[import-untyped]

VERSION: str = onnxruntime.__version__
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def open_session(
    graph: Path | bytes, provider: str, settings: Mapping[str, str], threads: int
) -> "onnxruntime.InferenceSession":
    """A session of a graph: its file, or its bytes.

    threads: worker threads of one inference on the CPU.

    Raises:
        BundleError: ONNX Runtime cannot load the file.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # the same bits every time, which native/HTTP identity relies on; the CPU gives them anyway
    options.use_deterministic_compute = provider != CPU
    providers: list[Any] = [(provider, dict(settings))]
    try:
        source = graph if isinstance(graph, bytes) else str(graph)
        return onnxruntime.InferenceSession(source, options, providers=providers)
    except Exception as error:  # ONNX Runtime has no common base below Exception
        name = "the batched graph" if isinstance(graph, bytes) else graph.name
        raise BundleError(f"ONNX Runtime cannot load {name}: {error}") from error
