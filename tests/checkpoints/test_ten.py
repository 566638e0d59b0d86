"""The ten at real size: served path against the published one, FP16 against FP32, and TensorRT.

Weights are random: nothing here says how well a checkpoint detects.
"""

import importlib.util
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from models.catalogue import Checkpoint
from models.criteria import pairwise_iou
from models.engines.onnxruntime_cpu import OnnxRuntimeEngine
from models.family import family
from models.fetch import fetch
from models.images import decode
from models.placement import Placement
from models.precision import to_fp16
from models.tensorrt_build import build_engine
from qualification import gates
from qualification.client import Client
from qualification.evidence import Seen, parse_response
from tests.checkpoints.conftest import Row
from tests.conftest import Application
from tests.models.half import rounding
from tests.models.transformers_cases import pictures

needs_rtx = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None,
    reason='needs tensorrt_rtx: pip install "detserve[dev]" (x86-64 only)',
)


@pytest.fixture(scope="module")
def client(application: Application) -> Iterator[Client]:
    client = Client(application.url)
    yield client
    client.close()


@pytest.mark.usefixtures("graph")  # built here, with its progress shown
def test_answers_are_the_published_implementation_s_on_images_of_every_shape(
    ten: Checkpoint, application: Application, client: Client, row: Row
) -> None:
    """What a client gets from the application over HTTP, beside the publisher's own pipeline."""
    owner = family(ten.family)
    reference = owner.reference(
        fetch(ten.source, ten.id, ten.licence, log=print), ten.canvas, ten.labels
    )
    entry = application.deploy({ten.id: {"checkpoint": ten.id}})[ten.id]
    assert entry["ready"], entry
    native, published, seconds = [], [], []
    try:
        for name, encoded in pictures().items():
            began = time.monotonic()
            status, content = client.infer(ten.id, [encoded])
            seconds.append(time.monotonic() - began)
            assert status == 200, content
            (boxes,) = parse_response(content)
            height, width, _ = decode(encoded, max_pixels=10**7).shape
            native.append(Seen.from_wire(name, boxes, height, width))
            theirs = reference(encoded, ten.threshold)
            published.append(Seen.of(name, theirs, reference.labels))
    finally:
        application.remove(ten.id)
    gate = gates.owning_case(owner.criteria, native, ten.labels, published, reference.labels)
    worst = {f"worst_{name}": gate.measured[name] for name in owner.criteria.bounds()}
    row(ten.id, {"images": len(native), "boxes": gate.measured["boxes"], **worst})
    row(ten.id, {"answer_ms_median": float(np.median(seconds)) * 1e3})
    assert gate.measured["boxes"]
    assert gate.passed, gate.detail


def test_half_precision_moves_boxes_and_scores_little(
    ten: Checkpoint, graph: onnx.ModelProto, tmp_path: Path, row: Row
) -> None:
    """As medians over candidates and over images: random weights multiply rounding until single
    boxes, and single images, mean nothing (in FP32, too: tests/models/random_ultralytics.py). Real
    weights are held to the family's gate in tests/models/test_half_precision.py."""
    owner = family(ten.family)
    engines = []
    for name, model in (("fp32", graph), ("fp16", rounding(to_fp16(graph, owner.islands)))):
        onnx.save(model, tmp_path / f"{name}.onnx")
        engines.append(OnnxRuntimeEngine(tmp_path / f"{name}.onnx", threads=2))
    sides, scores, overlaps = [], [], []
    for encoded in pictures().values():
        image = decode(encoded, max_pixels=10**7)
        placed = owner.place((image.shape[0], image.shape[1]), ten.canvas)
        canvas = placed.paint(image)[None]
        single = _best(engines[0].infer(canvas), placed, 100)
        half = _best(engines[1].infer(canvas), placed, 10_000)  # near-equal scores change places
        gaps = np.abs(single[0][:, None] - half[0][None]).max(axis=2)
        nearest = gaps.argmin(axis=1)
        pairs = pairwise_iou(single[0], half[0][nearest])
        overlaps.append(float(np.median(np.diagonal(pairs))))
        sides.append(float(np.median(gaps.min(axis=1))))
        scores.append(float(np.median(np.abs(single[1] - half[1][nearest]))))
    medians = {"side_px": sides, "score": scores, "iou": overlaps}
    found = {name: float(np.median(values)) for name, values in medians.items()}
    row(ten.id, {f"half_{name}": value for name, value in found.items()})
    for name, bound in owner.criteria.bounds().items():  # the family's own, for the medians
        if name in owner.criteria.at_least:
            assert found[name] >= bound
        else:
            assert found[name] < bound


def _best(
    outputs: Mapping[str, np.ndarray], placed: Placement, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The candidates of the highest scores: boxes in source pixels, and scores."""
    chosen = np.argsort(-outputs["scores"][0], kind="stable")[:count]
    return (
        placed.to_source(outputs["boxes"][0][chosen]).astype(float),
        outputs["scores"][0][chosen].astype(float),
    )


@needs_rtx
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_tensorrt_builder_takes_the_graph(
    ten: Checkpoint, graph: onnx.ModelProto, precision: str, row: Row
) -> None:
    owner = family(ten.family)
    model = to_fp16(graph, owner.islands) if precision == "fp16" else graph
    built = build_engine(model, owner.sizes, library="tensorrt_rtx", log=print)
    row(
        ten.id,
        {
            f"{precision}_build_s": built.seconds,
            f"{precision}_mb": len(built.serialised) / 1e6,
            f"{precision}_warnings": list(built.warnings),
        },
    )
    assert built.serialised
