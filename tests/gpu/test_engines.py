"""The engines of a GPU against the CPU's, on a real checkpoint and real images: within the family's
own gate in both precisions, the same bits every time, and memory that comes back.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models import catalogue, gpu
from models.building import ensure
from models.bundle import Bundle
from models.criteria import without_divided
from models.detections import Detections
from models.engine import Engine, EngineName
from models.engines import onnxruntime_cuda, tensorrt
from models.engines.choice import resolve
from models.errors import BundleError
from models.family import family
from models.gpu import Gpu
from models.images import decode
from models.precision import Precision
from qualification import gates
from qualification.datasets import coco

pytestmark = pytest.mark.gpu

CHECKPOINT = "yolov8n-coco"
GPU_ENGINES: list[EngineName] = ["onnxruntime-cuda", "tensorrt"]
MIB = 1 << 20

Get = Callable[[EngineName, Precision], Bundle]


@pytest.fixture(scope="module")
def get(card: Gpu, data: Path) -> Get:
    """The checkpoint's bundles, built on first use; skipped where the engine cannot run."""

    def build(engine: EngineName, precision: Precision) -> Bundle:
        if engine != "onnxruntime":
            try:
                resolve(engine, gpus=1)
            except BundleError as error:
                pytest.skip(str(error))
        return ensure(catalogue.load(CHECKPOINT), engine, precision, log=print)

    return build


@pytest.fixture(scope="module")
def images(data: Path) -> list[np.ndarray]:
    """The first of the dataset's selection, which the owning case is judged on."""
    chosen = coco.load(catalogue.load(CHECKPOINT).dataset).images[:32]
    return [decode(image.path.read_bytes(), 10**8) for image in chosen]


def detections(bundle: Bundle, images: list[np.ndarray], threshold: float) -> list[Detections]:
    engine = bundle.engine(threads=8)
    try:
        found = []
        for number, image in enumerate(images):
            placed, canvas = bundle.place(image)
            outputs = engine.infer(canvas, number % engine.slots)
            found.append(bundle.decode(outputs, placed, threshold))
        return found
    finally:
        engine.close()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_a_gpu_s_detections_are_within_the_family_s_gate_of_the_cpu_s(
    get: Get, images: list[np.ndarray], engine: EngineName, precision: Precision
) -> None:
    bundle, reference = get(engine, precision), get("onnxruntime", "fp32")
    checkpoint = catalogue.load(CHECKPOINT)
    criteria, labels = family(checkpoint.family).criteria, checkpoint.labels
    threshold = checkpoint.threshold
    lower = threshold - criteria.bounds()["score"]
    problems, worst, compared = [], {"score": 0.0, "side_px": 0.0}, 0
    judged = images[: gates.HALF_IMAGES] if precision == "fp16" else images
    for ours, theirs in zip(
        detections(bundle, judged, lower), detections(reference, judged, lower), strict=True
    ):
        native, expected, divided = without_divided(
            criteria, ours, labels, theirs, labels, threshold
        )
        found = criteria.compare(native, labels, expected, labels)
        problems += [] if found.problem is None else [found.problem]
        worst = {name: max(worst[name], found.differences.get(name, 0.0)) for name in worst}
        compared += len(expected)
        assert precision == "fp16" or divided == 0
    print(f"{engine} {precision}: {compared} boxes, worst {worst}")
    assert problems == []
    assert compared > 30  # boxes there are to compare


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_two_loads_of_a_bundle_give_the_same_bits(
    get: Get, images: list[np.ndarray], engine: EngineName, precision: Precision
) -> None:
    bundle = get(engine, precision)
    first, second = (detections(bundle, images, 0.05) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.boxes, other.boxes)
        np.testing.assert_array_equal(one.scores, other.scores)


@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_slots_in_threads_answer_as_one_alone(
    get: Get, images: list[np.ndarray], engine: EngineName
) -> None:
    bundle = get(engine, "fp16")
    loaded = bundle.engine(threads=1)
    canvases = [bundle.place(image)[1] for image in images]
    alone = [copied(loaded, canvas, 0) for canvas in canvases]
    together: dict[int, list[dict[str, np.ndarray]]] = {}

    def serve(slot: int) -> None:
        together[slot] = [copied(loaded, canvas, slot) for canvas in canvases]

    threads = [threading.Thread(target=serve, args=[slot]) for slot in range(loaded.slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loaded.close()
    assert sorted(together) == list(range(loaded.slots))
    for answers in together.values():
        for one, other in zip(alone, answers, strict=True):
            for name, values in one.items():
                np.testing.assert_array_equal(values, other[name])


def copied(engine: Engine, canvas: np.ndarray, slot: int) -> dict[str, np.ndarray]:
    return {name: values.copy() for name, values in engine.infer(canvas, slot).items()}


@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_fifty_loads_leave_the_memory_as_it_was(
    get: Get, images: list[np.ndarray], card: Gpu, engine: EngineName
) -> None:
    bundle = get(engine, "fp16")
    detections(bundle, images[:1], 0.25)  # the libraries' own part stays with the process
    before = gpu.used_memory(card)
    for _ in range(50):
        detections(bundle, images[:1], 0.25)
    grown = gpu.used_memory(card) - before
    print(f"{engine}: {grown / MIB:.1f} MiB more after 50 loads")
    assert grown < 16 * MIB


@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_a_bundle_says_what_it_was_built_on_and_what_it_takes(
    get: Get, card: Gpu, engine: EngineName
) -> None:
    built = get(engine, "fp16").manifest.gpu
    assert built is not None
    assert (built.name, built.driver) == (card.name, card.driver)
    assert built.memory_mib is not None
    print(f"{engine}: {built}")
    assert 50 < built.memory_mib < 8192


def test_onnxruntime_answers_the_same_without_page_locked_memory(
    get: Get, images: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = get("onnxruntime-cuda", "fp32")
    locked = detections(bundle, images[:4], 0.05)
    monkeypatch.setattr(onnxruntime_cuda, "has_pycuda", lambda: False)
    for one, other in zip(locked, detections(bundle, images[:4], 0.05), strict=True):
        np.testing.assert_array_equal(one.boxes, other.boxes)


def test_tensorrt_s_graph_answers_as_its_calls_do(
    get: Get, images: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = get("tensorrt", "fp16")
    replayed = detections(bundle, images, 0.05)
    monkeypatch.setattr(tensorrt, "cuda_bindings_installed", lambda: False)
    for one, other in zip(replayed, detections(bundle, images, 0.05), strict=True):
        np.testing.assert_array_equal(one.boxes, other.boxes)
        np.testing.assert_array_equal(one.scores, other.scores)


def test_auto_takes_a_gpu_engine_here(get: Get) -> None:
    get("onnxruntime-cuda", "fp32")
    assert resolve("auto", gpus=1).engine in GPU_ENGINES
