"""Published weights -> ONNX in Ultralytics' own export form, by a process of its own.

Why a process: torch and onnxruntime in one can end in a oneMKL error, and serving needs no torch.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx

from models.errors import BundleError, SourceError
from models.graph import IMAGE, OUTPUTS
from models.precision import name_by_module

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
        _run([sys.executable, "-m", "models.ultralytics.export", *command])
        yield target


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with everything constant computed, by ONNX Runtime's basic optimisations, so that
    TensorRT can parse it.

    Raises:
        BundleError: other than ONNX's own operators are left, or the signature changed.
    """
    import onnxruntime  # type: ignore[import-untyped]

    name_by_module(model)
    with tempfile.TemporaryDirectory(prefix="detserve-fold-") as scratch:
        target = Path(scratch) / "folded.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        result = onnx.load(target)
    foreign = {node.domain for node in result.graph.node} - {"", "ai.onnx"}
    sides = [each.name for each in (*result.graph.input, *result.graph.output)]
    if foreign or sides != [IMAGE, *OUTPUTS]:
        raise BundleError(f"folding left {sides} with operators of {sorted(foreign)}")
    own = [each for each in result.opset_import if each.domain in ("", "ai.onnx")]
    del result.opset_import[:]
    result.opset_import.extend(own)
    return result


def _run(command: Sequence[str]) -> None:
    """Run the exporting process; what it ended with, as an error of the same kind here."""
    here = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    ended = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        kind, _, sentence = said[-1].partition(": ")
        if kind == "SourceError":
            raise SourceError(sentence)
        raise BundleError(sentence if kind == "BundleError" else f"the export ended: {said[-1]}")
