"""Bundles of engines that are tied to a GPU: what is recorded, and what is refused elsewhere.

On the simulated GPU; TensorRT's builder and the measuring process are replaced, since both need a
real one (tests/gpu).
"""

import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from models import building, bundle, catalogue, engine_memory, gpu
from models.building import ensure, location
from models.bundle import Bundle
from models.catalogue import Checkpoint
from models.detections import Detections
from models.errors import BundleError, BundleMismatch
from models.graph import SizeRange
from models.precision import Islands
from models.resize import Resized
from tests.models.engines.fake_cuda import VERSION, FakeGpu, install
from tests.models.engines.test_choice import H200
from tests.models.test_tensorrt_build import network

GB300 = replace(H200, name="NVIDIA GB300", compute_capability="10.3")
SIZES = SizeRange(smallest=(2, 3), usual=(480, 640), largest=(700, 800))


def ignore(message: str) -> None:
    """Progress is of no interest here."""


@pytest.fixture
def checkpoint() -> Checkpoint:
    return catalogue.load("yolox-nano")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[onnx.ModelProto, SizeRange | None]]:
    """What TensorRT was asked to build."""
    return []


@pytest.fixture
def simulated(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[tuple[onnx.ModelProto, SizeRange | None]],
) -> FakeGpu:
    """A machine with an H200 and TensorRT, in a DETSERVE_HOME of its own."""

    def build(
        graph: onnx.ModelProto, sizes: SizeRange | None, *, log: Callable[[str], None]
    ) -> Any:
        asked.append((graph, sizes))
        return types.SimpleNamespace(serialised=b"the plan")

    simulated = install(monkeypatch)
    simulated.canvas = (1, 416, 416, 3)
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(gpu, "find", lambda: H200)
    monkeypatch.setattr(building, "build_engine", build)
    monkeypatch.setattr(building, "measured_mib", lambda folder: 1234)
    return simulated


def test_a_tensorrt_bundle_holds_a_plan_and_says_what_it_is_tied_to(
    simulated: FakeGpu, checkpoint: Checkpoint, asked: list[tuple[onnx.ModelProto, Any]]
) -> None:
    built = ensure(checkpoint, "tensorrt", "fp16", log=ignore)
    assert (built.folder / "engine.plan").read_bytes() == b"the plan"
    manifest = Bundle.open(built.folder).manifest
    assert list(manifest.files) == ["engine.plan"]
    assert manifest.built_with["tensorrt"] == VERSION
    assert manifest.gpu is not None
    assert manifest.gpu.model_dump() == {
        "name": "NVIDIA H200",
        "compute_capability": "9.0",
        "driver": "580.159.04",
        "cuda": "13.0",
        "memory_mib": 1234,
    }
    ((graph, sizes),) = asked
    assert sizes is None
    halves = onnx.TensorProto.FLOAT16
    assert any(weight.data_type == halves for weight in graph.graph.initializer)
    assert not any(simulated.live.values()), simulated.live


class Following:
    """A family whose input follows the image's size."""

    islands, sizes = Islands(), SIZES

    def export(self, files: object, canvas: object, labels: Sequence[str]) -> onnx.ModelProto:
        return network("height", "width")

    def place(self, source: tuple[int, int], canvas: None) -> Resized:
        return Resized.stretched(source, source)

    def decode(self, outputs: dict[str, np.ndarray], placed: Resized, threshold: float) -> Any:
        return Detections(
            boxes=np.zeros((0, 4), np.float32),
            scores=np.zeros(0, np.float32),
            class_ids=np.zeros(0, np.int32),
            height=placed.source_height,
            width=placed.source_width,
        )


def test_a_family_that_follows_the_image_is_built_for_its_sizes(
    simulated: FakeGpu,
    checkpoint: Checkpoint,
    asked: list[tuple[onnx.ModelProto, SizeRange | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (building, bundle):
        monkeypatch.setattr(module, "family", lambda name: Following())
    simulated.profile = [(1, *size, 3) for size in (SIZES.smallest, SIZES.usual, SIZES.largest)]
    ensure(checkpoint.model_copy(update={"canvas": None}), "tensorrt", "fp32", log=ignore)
    assert [sizes for _, sizes in asked] == [SIZES]


def test_each_gpu_and_each_tensorrt_has_bundles_of_its_own(
    simulated: FakeGpu, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = location(checkpoint, "tensorrt", "fp16")
    onnxruntime = location(checkpoint, "onnxruntime-cuda", "fp16")
    on_the_cpu = location(checkpoint, "onnxruntime", "fp32")
    monkeypatch.setattr(gpu, "find", lambda: GB300)
    assert location(checkpoint, "tensorrt", "fp16") != here
    assert location(checkpoint, "onnxruntime-cuda", "fp16") != onnxruntime
    assert location(checkpoint, "onnxruntime", "fp32") == on_the_cpu
    monkeypatch.setattr(gpu, "find", lambda: H200)
    assert location(checkpoint, "tensorrt", "fp16") == here
    monkeypatch.setattr(sys.modules["tensorrt"], "__version__", "11.1.0.1")
    assert location(checkpoint, "tensorrt", "fp16") != here


@pytest.mark.parametrize(
    ("found", "version", "has"),
    [
        (GB300, VERSION, f"NVIDIA GB300, 10.3, TensorRT {VERSION}"),
        (H200, "11.1.0.1", "NVIDIA H200, 9.0, TensorRT 11.1.0.1"),
        (None, VERSION, f"no NVIDIA GPU, TensorRT {VERSION}"),
    ],
)
def test_a_bundle_of_another_gpu_or_tensorrt_is_refused_with_what_to_do(
    simulated: FakeGpu,
    checkpoint: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
    found: gpu.Gpu | None,
    version: str,
    has: str,
) -> None:
    built = ensure(checkpoint, "tensorrt", "fp16", log=ignore)
    built.engine(threads=1).close()
    monkeypatch.setattr(gpu, "find", lambda: found)
    monkeypatch.setattr(sys.modules["tensorrt"], "__version__", version)
    with pytest.raises(BundleMismatch) as caught:
        Bundle.open(built.folder).engine(threads=1)
    assert str(caught.value) == (
        f"bundle yolox-nano/{built.folder.name} was built for NVIDIA H200, 9.0, TensorRT {VERSION} "
        f"and this machine has {has}: give `checkpoint: yolox-nano` instead of `bundle` in "
        f"serve_config.yaml to have one built"
    )


def test_a_cpu_bundle_says_nothing_of_a_gpu_and_runs_beside_one(
    simulated: FakeGpu, checkpoint: Checkpoint
) -> None:
    built = ensure(checkpoint, "onnxruntime", "fp32", log=ignore)
    assert built.manifest.gpu is None
    built.engine(threads=1).close()


def test_memory_that_cannot_be_measured_is_one_sentence(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path / "home"))
    with pytest.raises(BundleError) as caught:
        engine_memory.measured_mib(tmp_path / "yolox-nano" / "nothing")
    assert str(caught.value).startswith("measuring the GPU memory of yolox-nano failed: ")
    assert "\n" not in str(caught.value)
