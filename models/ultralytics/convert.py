"""Published weights -> ONNX in Ultralytics' own export form, by a process of its own."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models.errors import BundleError
from models.torch_process import run_with_torch

STRIDE = 32  # of the coarsest output: what both sides of a canvas must be a multiple of


@contextmanager
def converted(
    checkpoint: Path, canvas: tuple[int, int], architecture: Mapping[str, Any] | None = None
) -> Iterator[Path]:
    """The checkpoint as an ONNX file that lives as long as the context.

    architecture: for safetensors, which carry none; an archive has its own.

    Raises:
        BundleError: the weights are not of that architecture, or torch is missing.
        SourceError: the file is damaged or refused.
    """
    if any(side % STRIDE for side in canvas):
        raise BundleError(f"both sides of the canvas {canvas} must be multiples of {STRIDE}")
    with tempfile.TemporaryDirectory(prefix="detserve-export-") as scratch:
        target = Path(scratch) / "model.onnx"
        command = [str(checkpoint), str(target), *map(str, canvas)]
        if architecture is not None:
            plan = Path(scratch) / "plan.json"
            plan.write_text(json.dumps(architecture))
            command += ["--plan", str(plan)]
        run_with_torch("models.ultralytics.export", command)
        yield target
