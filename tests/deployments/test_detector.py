"""`Detector` without a cluster: a thread a slot, and an engine that is closed once."""

import asyncio
import gc
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ray import serve

from deployments.config import ModelArgs
from deployments.detector import Detector, TaskResult
from models import status
from models.bundle import Bundle
from models.engine import Engine, EngineName
from models.errors import BundleUnqualified
from models.status import Promotion, QualificationRecord, Status

ARGS = ModelArgs(checkpoint="yolox-nano")


class TwoSlots:
    """The real engine twice; both inferences wait for each other while `together` is set."""

    name: EngineName = "onnxruntime"
    slots = 2
    max_batch = 1

    def __init__(self, engines: list[Engine]) -> None:
        self.engines, self.closed = engines, 0
        self.together: threading.Barrier | None = None
        self.used: set[tuple[int, int]] = set()

    def infer(self, image: np.ndarray, slot: int = 0) -> dict[str, np.ndarray]:
        self.used.add((slot, threading.get_ident()))
        if self.together is not None:
            self.together.wait(timeout=30)
        return self.engines[slot].infer(image)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def engines(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TwoSlots]:
    made: list[TwoSlots] = []
    right = Bundle.engine

    def engine(self: Bundle, threads: int, max_batch: int = 1) -> Engine:
        if threading.current_thread() is not threading.main_thread():
            return right(self, threads)
        made.append(TwoSlots([right(self, threads) for _ in range(2)]))
        return made[-1]

    context = SimpleNamespace(replica_id=SimpleNamespace(unique_id="replica"))
    monkeypatch.setattr(serve, "get_replica_context", lambda: context)
    monkeypatch.setattr(Bundle, "engine", engine)
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path / "home"))
    return made


def test_two_images_are_inferred_at_once_each_in_its_slot_s_thread(
    engines: list[TwoSlots], data: Path
) -> None:
    detector = Detector(ARGS)
    engine = engines[-1]
    assert {slot for slot, _ in engine.used} == {0, 1}  # both are warm
    paths = sorted((data / "coco128" / "images").glob("*.jpg"))[:2]
    images = [path.read_bytes() for path in paths]

    async def one_by_one() -> list[object]:
        return [await detector.detect(image, 10**8) for image in images]

    async def at_once() -> list[object]:
        return list(await asyncio.gather(*(detector.detect(image, 10**8) for image in images)))

    alone = asyncio.run(one_by_one())
    engine.together = threading.Barrier(2)  # neither ends before both are in the engine
    together = asyncio.run(at_once())
    assert len(engine.used) == 2  # one thread a slot, and no other
    for one, other in zip(alone, together, strict=True):
        assert isinstance(one, TaskResult)
        assert isinstance(other, TaskResult)
        np.testing.assert_array_equal(one.detections.boxes, other.detections.boxes)
        assert len(one.detections.boxes) > 0


def test_the_engine_is_closed_once_when_the_replica_stops(engines: list[TwoSlots]) -> None:
    detector = Detector(ARGS)
    detector.__del__()  # as Serve does
    assert engines[-1].closed == 1
    del detector
    gc.collect()
    assert engines[-1].closed == 1


def test_which_engine_it_became_and_why_is_described(engines: list[TwoSlots]) -> None:
    described = asyncio.run(Detector(ARGS).describe())
    assert described["engine"] == "onnxruntime"
    assert described["gpu"] is None
    expected = (
        "on the CPU because `resources.gpus` is 0: no part of a GPU is reserved for this model"
    )
    assert described["engine_reason"] == expected


def test_what_a_model_requires_decides_whether_its_bundle_is_served(
    engines: list[TwoSlots],
) -> None:
    digest = asyncio.run(Detector(ARGS).describe())["bundle_digest"]
    required = ARGS.model_copy(update={"require": Status.FAMILY_VALIDATED})
    sentence = r"yolox-nano has the status implemented and `require` asks for family-validated"
    with pytest.raises(BundleUnqualified, match=sentence):
        Detector(required)
    for reached in (Status.FAMILY_VALIDATED, Status.AIPERF_QUALIFIED):
        status.write(digest, QualificationRecord(status=reached, run="r", date="d"))
        Detector(required)


def test_who_signed_the_bundle_off_is_described(engines: list[TwoSlots]) -> None:
    detector = Detector(ARGS)
    described = asyncio.run(detector.describe())
    assert described["promoted"] is None
    sign_off = Promotion(
        bundle_digest=described["bundle_digest"], run="r", date="d", gates=["identity"]
    )
    status.promote(sign_off)
    assert asyncio.run(detector.describe())["promoted"] == sign_off.model_dump()


def test_the_config_is_described_without_where_this_machine_keeps_its_files(
    engines: list[TwoSlots], tmp_path: Path
) -> None:
    Detector(ARGS)  # builds the bundle
    (manifest,) = (tmp_path / "home" / "bundles").rglob("bundle.json")
    args = ModelArgs(bundle=str(manifest.parent), threshold=0.5)
    config = asyncio.run(Detector(args).describe())["config"]
    assert (config["bundle"], config["threshold"]) == (manifest.parent.name, 0.5)
    assert str(tmp_path) not in repr(config)
