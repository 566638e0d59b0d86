"""Writes a checkpoint as ONNX, in the process that may import torch (convert.py starts it).

    python -m models.ultralytics.export yolov8n.pt yolov8n.onnx 640 640
    python -m models.ultralytics.export model.safetensors yolov10n.onnx 640 640 --plan plan.json

The graph is unedited: `images` float32 [1, 3, H, W] in, `output0` as the head returns it out.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from models.errors import BundleError, DetserveError
from models.ultralytics.archive import Module, read_archive
from models.ultralytics.plan import plan_of
from models.ultralytics.weights import read_safetensors

OPSET = 18  # the exporter's own; TensorRT 10 parses up to 22
INPUT, OUTPUT = "images", "output0"  # as Ultralytics' exporter names them


def main(arguments: Sequence[str]) -> None:
    """Read, build, load, fuse, trace and write."""
    parser = argparse.ArgumentParser(prog="python -m models.ultralytics.export")
    parser.add_argument("checkpoint", type=Path, help="a .pt archive or model.safetensors")
    parser.add_argument("output", type=Path, help="the .onnx file to write")
    parser.add_argument("canvas", type=int, nargs=2, help="height and width")
    parser.add_argument("--plan", type=Path, help="architecture dict (JSON), for safetensors")
    wanted = parser.parse_args(arguments)
    modules: Mapping[str, Module] = {}
    if wanted.plan is None:
        archive = read_archive(wanted.checkpoint)
        architecture, state, modules = archive.architecture, archive.state, archive.modules
    else:
        architecture = json.loads(wanted.plan.read_bytes())
        state = read_safetensors(wanted.checkpoint)
    write(architecture, state, modules, wanted.canvas, wanted.output)


def write(
    architecture: Mapping[str, object],
    state: Mapping[str, np.ndarray],
    modules: Mapping[str, Module],
    canvas: Sequence[int],
    output: Path,
) -> None:
    """Build the network, load it strictly and write its graph at that canvas."""
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]

        from models.ultralytics.network import Network
    except ImportError as error:
        raise BundleError(
            f'exporting needs torch and onnxscript: pip install "detserve[export]" ({error})'
        ) from error
    network = Network(plan_of(architecture))
    network.load(state, modules)
    network.fuse()
    with torch.no_grad():
        program = torch.onnx.export(
            network,
            (torch.zeros(1, 3, *canvas),),
            dynamo=True,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=[OUTPUT],
            verbose=False,
        )
    program.save(output, external_data=False)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DetserveError as error:
        sys.exit(f"{type(error).__name__}: {error}")
