"""Hugging Face detectors to bundle graphs (models/graph.py): exported by torch, in its own process.

The family's `network` module holds what is exported; what runs there is also a command:

    python -m models.transformers_export models.families.detr.network config.json \\
        model.safetensors traced.onnx
"""

import argparse
import importlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from models.errors import BundleError
from models.fold import folded
from models.graph import IMAGE, OUTPUTS
from models.torch_process import run_with_torch
from models.transformers_checkpoint import CONFIG, WEIGHTS, load, published_config
from models.transformers_preprocessing import check_preprocessing

OPSET = 18
# A dynamic graph is traced at one size; a side of prime length and no square, so that no size
# the tracer sees can be mistaken for a constant or for another size.
_TRACED_SIZE = (307, 419)
_CHECKED_SIZE = (416, 290)
# of the sorted outputs, as medians: near-equal scores may swap places between torch and ONNX
# Runtime, which is no fault. Rounding alone gives 1e-6 to 1e-3 on random weights, sizes frozen in
# a part of the graph 1e-2 and more (measured on the tests' checkpoints).
_TOLERANCE = 4e-3


def export_transformers(
    files: Mapping[str, Path],
    canvas: tuple[int, int] | None,
    labels: Sequence[str],
    *,
    model_type: str,
    network: str,
    size: Mapping[str, int] | None,
    imagenet: bool,
) -> onnx.ModelProto:
    """The bundle's graph of a published directory.

    files: published name -> path, with `config.json` and `model.safetensors`.
    canvas: the input's height and width; None: both are dynamic.
    model_type: the architecture that `config.json` must name.
    network: the family's module with `Network`, a torch module made from the loaded model.
    size, imagenet: the served preprocessing, which the published one must be; as
    `check_preprocessing` takes them.

    Raises:
        BundleError: the files are not such a checkpoint, or torch or transformers are missing.
    """
    published_config(files, model_type, labels)
    check_preprocessing(files, size=size, imagenet=imagenet)
    with tempfile.TemporaryDirectory(prefix="detserve-export-") as scratch:
        traced = Path(scratch) / "traced.onnx"
        arguments = [network, str(files[CONFIG]), str(files[WEIGHTS]), str(traced)]
        arguments += [str(side) for side in canvas or ()]
        run_with_torch("models.transformers_export", arguments)
        graph = folded(onnx.load(traced))
        check_signature(graph, canvas)
        check_outputs(graph, np.load(traced.with_suffix(".npz")))
        return graph


def check_outputs(graph: onnx.ModelProto, published: Mapping[str, np.ndarray]) -> None:
    """The graph answers as the published forward pass did, at a size it was not traced at.

    Exporters freeze a dynamic size without a word, even where the input's dimensions stay symbolic.

    published: `image` and the outputs of models/graph.py.

    Raises:
        BundleError: it does not.
    """
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    answers = session.run(["boxes", "scores"], {IMAGE: published[IMAGE]})
    for name, answer in zip(("boxes", "scores"), answers, strict=True):
        expected = published[name]
        if answer.shape != expected.shape or not np.isfinite(answer).all():
            raise BundleError(f"the exported graph's {name} are {answer.shape} or not finite")
        gap = float(np.median(np.abs(np.sort(answer, axis=1) - np.sort(expected, axis=1))))
        if gap > _TOLERANCE:
            height, width = published[IMAGE].shape[1:3]
            raise BundleError(
                f"the exported graph's {name} differ from the published model's by {gap:.2g} at "
                f"{height}x{width}"
            )


def check_signature(graph: onnx.ModelProto, canvas: tuple[int, int] | None) -> None:
    """The signature is that of models/graph.py and the operators are ONNX's own.

    Raises:
        BundleError: otherwise.
    """
    (image,) = graph.graph.input
    dims = [dim.dim_value or dim.dim_param for dim in image.type.tensor_type.shape.dim]
    expected = [1, *(canvas or ("height", "width")), 3]
    named = tuple(value.name for value in graph.graph.output)
    if (image.name, dims, named) != (IMAGE, expected, OUTPUTS):
        raise BundleError(
            f"the exported graph takes {image.name} {dims} and returns {list(named)}; it must "
            f"take {IMAGE} {expected} and return {list(OUTPUTS)}"
        )
    versions = [o.version for o in graph.opset_import if o.domain in ("", "ai.onnx")]
    foreign = {node.domain for node in graph.graph.node} - {"", "ai.onnx"}
    if foreign or versions != [OPSET] or graph.functions:
        raise BundleError(
            f"the exported graph must hold only ONNX operators of opset {OPSET}; it has "
            f"{sorted(foreign)} and opset {versions}"
        )


def main(arguments: Sequence[str]) -> None:
    """In the exporting process: load, trace and write the graph, unfolded."""
    parser = argparse.ArgumentParser(prog="python -m models.transformers_export")
    parser.add_argument("network", help="module, e.g. models.families.detr.network")
    parser.add_argument("config", type=Path, help="config.json")
    parser.add_argument("weights", type=Path, help="model.safetensors")
    parser.add_argument("output", type=Path, help="the .onnx file to write")
    parser.add_argument("canvas", type=int, nargs="*", help="height and width; none: dynamic")
    wanted = parser.parse_args(arguments)
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]

        module = importlib.import_module(wanted.network)
        network = module.Network(load(json.loads(wanted.config.read_bytes()), wanted.weights))
    except ImportError as error:
        raise BundleError(
            f'exporting needs torch and transformers: pip install "detserve[export]" ({error})'
        ) from error
    size = tuple(wanted.canvas) or _TRACED_SIZE
    dynamic = {} if wanted.canvas else {1: "height", 2: "width"}
    generator = torch.Generator().manual_seed(0)

    def patches(height: int, width: int) -> torch.Tensor:
        """Smooth ones, as in a photograph: on noise, queries tie and their order is chance."""
        few = torch.rand((1, 3, 12, 12), generator=generator) * 255
        image = torch.nn.functional.interpolate(few, size=(height, width), mode="bilinear")
        return image.permute(0, 2, 3, 1).to(torch.uint8)

    example, unseen = patches(*size), patches(*(wanted.canvas or _CHECKED_SIZE))
    with torch.no_grad():
        answers = network.eval().published_pass(unseen)
        named = dict(zip(OUTPUTS, (answer.numpy() for answer in answers), strict=True))
        np.savez(wanted.output.with_suffix(".npz"), image=unseen.numpy(), **named)
        program = torch.onnx.export(
            network,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            input_names=[IMAGE],
            output_names=list(OUTPUTS),
            dynamic_shapes={IMAGE: dynamic},
            verbose=False,
        )
    program.save(wanted.output, external_data=False)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BundleError as error:
        sys.exit(f"BundleError: {error}")
