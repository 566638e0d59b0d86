"""`TensorRTEngine` on a simulated GPU (fake_cuda.py), which answers right only when the order of
calls, the streams, the waiting and the sizes are right. Twins on a real GPU are in tests/gpu.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models import cuda_memory, tensorrt_callbacks
from models.cuda_memory import DeviceMemory, PageLocked, Stream
from models.engines import tensorrt
from models.engines.tensorrt import TensorRTEngine
from models.errors import BundleError, DetectionFailed
from tests.models.engines.fake_cuda import OUTPUTS as OUTPUTS_OF_FAKE
from tests.models.engines.fake_cuda import FakeGpu, answer, install

SMALL, LARGE = (1, 2, 3, 3), (1, 9, 9, 3)


@pytest.fixture(params=[True, False], ids=["graphs", "no graphs"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """Without graphs: cuda-bindings is not installed."""
    yield from simulated(monkeypatch, request.param)


@pytest.fixture
def with_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    yield from simulated(monkeypatch, True)


def simulated(monkeypatch: pytest.MonkeyPatch, bindings: bool) -> Iterator[FakeGpu]:
    for cached in (tensorrt_callbacks.logger, tensorrt._say_once):
        cached.cache_clear()
    yield install(monkeypatch, bindings=bindings)
    for cached in (tensorrt_callbacks.logger, tensorrt._say_once):
        cached.cache_clear()


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "engine.plan"
    path.write_bytes(b"a plan")
    return path


def noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def check_answers(plan: Path, shape: tuple[int, ...]) -> None:
    """Two images in each slot, the slots in turns: each is answered with its own."""
    engine = TensorRTEngine(plan)
    try:
        for seed in range(4):
            image = noise(shape, seed)
            found = engine.infer(image, seed % 2)
            for name, expected in answer(image).items():
                assert found[name].dtype == expected.dtype
                np.testing.assert_array_equal(found[name], expected)
    finally:
        engine.close()


def test_each_image_is_answered_with_its_own_boxes(gpu: FakeGpu, plan: Path) -> None:
    check_answers(plan, gpu.canvas)


def test_images_of_any_size_in_the_profile_are_answered_in_any_order(
    gpu: FakeGpu, plan: Path
) -> None:
    gpu.profile = [SMALL, (1, 4, 5, 3), LARGE]
    engine = TensorRTEngine(plan)
    allocated = [call for call in gpu.calls if call.startswith(("allocate", "page-lock"))]
    for seed, shape in enumerate([LARGE, SMALL, (1, 2, 9, 3), (1, 9, 3, 3), SMALL, LARGE]):
        image = noise(shape, seed)
        for name, expected in answer(image).items():
            np.testing.assert_array_equal(engine.infer(image, seed % 2)[name], expected)
    assert [call for call in gpu.calls if call.startswith(("allocate", "page-lock"))] == allocated
    with pytest.raises(DetectionFailed, match="TensorRT: "):
        engine.infer(noise((1, 2, 10, 3)))
    engine.close()


def test_a_fixed_engine_takes_no_other_size(gpu: FakeGpu, plan: Path) -> None:
    engine = TensorRTEngine(plan)
    with pytest.raises(ValueError, match=r"takes \(1, 6, 8, 3\), not \(1, 8, 6, 3\)"):
        engine.infer(noise((1, 8, 6, 3)))
    engine.close()


def test_the_calls_of_an_inference_are_in_order_and_on_the_slot_s_stream(
    gpu: FakeGpu, plan: Path
) -> None:
    engine = TensorRTEngine(plan)
    for slot in (1, 0):
        before = len(gpu.calls)
        engine.infer(noise(gpu.canvas), slot)
        calls = gpu.calls[before:]
        stream = f"stream {slot}"
        eager = [f"copy in, {stream}", f"infer, {stream}", *[f"copy out, {stream}"] * 3]
        replayed = [f"launch graph, {stream}"]
        graphs = "begin capture" in gpu.calls
        assert calls == [*(replayed if graphs else eager), f"synchronize {stream}"]
    engine.close()


def test_the_graph_is_recorded_after_an_inference_that_was_waited_for(
    with_graphs: FakeGpu, plan: Path
) -> None:
    engine = TensorRTEngine(plan)
    calls = with_graphs.calls
    first = calls.index("begin capture")
    assert calls[first - 1] == "synchronize stream 0"
    assert calls[first + 1 : calls.index("end capture")] == [
        "copy in, stream 0",
        "infer, stream 0",
        *["copy out, stream 0"] * 3,
    ]
    engine.close()


def test_what_a_slot_returned_is_left_alone_by_the_other(gpu: FakeGpu, plan: Path) -> None:
    engine = TensorRTEngine(plan)
    first, second = noise(gpu.canvas, 1), noise(gpu.canvas, 2)
    kept = engine.infer(first, 0)
    engine.infer(second, 1)
    np.testing.assert_array_equal(kept["boxes"], answer(first)["boxes"])
    engine.close()


def test_slots_run_in_threads_of_their_own_and_leave_no_context_in_them(
    gpu: FakeGpu, plan: Path
) -> None:
    engine = TensorRTEngine(plan)
    left: list[Any] = []

    def serve(slot: int) -> None:
        image = noise(gpu.canvas, slot)
        found = engine.infer(image, slot)["boxes"]
        left.append((gpu.stack(), np.array_equal(found, answer(image)["boxes"])))

    threads = [threading.Thread(target=serve, args=[slot]) for slot in range(engine.slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left == [([], True)] * 2
    closing = threading.Thread(target=engine.close)
    closing.start()
    closing.join()
    assert not any(gpu.live.values()), gpu.live


def on_another_stream(method: str) -> Callable[[pytest.MonkeyPatch], None]:
    """The method queues on a stream that nobody waits for."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = getattr(Stream, method)

        def wrong(self: Stream, *arguments: Any) -> None:
            others.append(Stream())
            right(others[-1], *arguments)

        patch.setattr(Stream, method, wrong)

    others: list[Stream] = []
    return plant


def out_of_order(patch: pytest.MonkeyPatch) -> None:
    """Outputs are copied before they are computed."""

    def wrong(self: Any) -> None:
        self._stream.copy_in(self._there["image"], self._image)
        for name, array in self._outputs.items():
            self._stream.copy_out(array, self._there[name])
        self._must(self._context.execute_async_v3(self._stream.handle))

    patch.setattr(tensorrt._Slot, "_queue", wrong)


def infer_on_another_stream(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stream, "handle", property(lambda self: self._stream.handle + 1))


def without_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stream, "synchronize", lambda self: None)


def a_byte_short(kind: type[Any]) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(patch: pytest.MonkeyPatch) -> None:
        right = kind.__init__
        patch.setattr(kind, "__init__", lambda self, nbytes: right(self, nbytes - 1))

    return plant


def for_the_usual_size(patch: pytest.MonkeyPatch) -> None:
    """Buffers of a dynamic engine are made for another size than the largest."""
    right = tensorrt._sizes

    def wrong(engine: Any, signature: Any) -> Any:
        sizes = right(engine, signature)
        return sizes and type(sizes)(sizes.smallest, sizes.usual, sizes.usual)

    patch.setattr(tensorrt, "_sizes", wrong)


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (on_another_stream("copy_in"), AssertionError),
        (on_another_stream("copy_out"), AssertionError),
        (infer_on_another_stream, (AssertionError, KeyError)),
        (out_of_order, AssertionError),
        (without_waiting, AssertionError),
        (a_byte_short(DeviceMemory), ValueError),
        (a_byte_short(PageLocked), ValueError),
    ],
    ids=["copy in", "copy out", "infer", "order", "no waiting", "device", "host"],
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
def test_a_planted_fault_is_caught(
    gpu: FakeGpu,
    plan: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    kind: type[Exception],
    dynamic: bool,
) -> None:
    if dynamic:
        gpu.profile = [SMALL, gpu.canvas, LARGE]
    check_answers(plan, gpu.canvas)
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises(kind):
            check_answers(plan, gpu.canvas)


def test_buffers_that_are_not_of_the_largest_size_are_caught(
    gpu: FakeGpu, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.profile = [SMALL, gpu.canvas, LARGE]
    check_answers(plan, LARGE)
    with monkeypatch.context() as patch:
        for_the_usual_size(patch)
        with pytest.raises(ValueError, match="243 bytes do not fit into the 144"):
            check_answers(plan, LARGE)


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
def test_fifty_loads_leave_nothing_behind(gpu: FakeGpu, plan: Path, dynamic: bool) -> None:
    if dynamic:
        gpu.profile = [SMALL, gpu.canvas, LARGE]
    for _ in range(50):
        check_answers(plan, gpu.canvas)
    assert not any(gpu.live.values()), gpu.live
    assert gpu.memory == {}


def test_what_is_made_last_is_given_back_first(with_graphs: FakeGpu, plan: Path) -> None:
    engine = TensorRTEngine(plan)
    before = len(with_graphs.calls)
    engine.close()
    a_slot = [
        "destroy graph",
        *["free device memory", "free page-locked memory"] * 4,
        "destroy execution context",
    ]
    expected = [
        *("synchronize stream 1", *a_slot, "destroy stream 1"),
        *("synchronize stream 0", *a_slot, "destroy stream 0"),
        *("unload engine", "release context"),
    ]
    assert with_graphs.calls[before:] == expected


def test_what_a_failed_load_made_is_given_back(gpu: FakeGpu, plan: Path) -> None:
    gpu.capacity = 500  # the second slot's buffers do not fit
    sentence = r"the GPU's memory is full: 0 MiB more are needed, 0 of 0 MiB are free"
    with pytest.raises(BundleError, match=sentence):
        TensorRTEngine(plan)
    assert gpu.memory == {}
    assert gpu.live["stream"] == gpu.live["page-locked memory"] == 0


def test_without_cuda_bindings_it_runs_and_says_so_once(
    gpu: FakeGpu, plan: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        check_answers(plan, gpu.canvas)
        check_answers(plan, gpu.canvas)
    graphs = "begin capture" in gpu.calls
    sentence = "TensorRT runs without CUDA graphs: cuda-bindings is not installed"
    assert [each.message for each in caplog.records] == ([] if graphs else [sentence])


def test_an_engine_that_cannot_be_recorded_runs_without_a_graph_and_says_so(
    with_graphs: FakeGpu, plan: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_graphs.capturable = False
    check_answers(plan, with_graphs.canvas)
    (said,) = [each.message for each in caplog.records]
    assert said.startswith("TensorRT runs without CUDA graphs: ")
    assert said.endswith("answers CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
    assert not any(call.startswith("launch") for call in with_graphs.calls)


def test_a_dynamic_engine_is_never_replayed(with_graphs: FakeGpu, plan: Path) -> None:
    with_graphs.profile = [SMALL, with_graphs.canvas, LARGE]
    check_answers(plan, with_graphs.canvas)
    assert "begin capture" not in with_graphs.calls


def test_a_plan_that_tensorrt_refuses_is_a_sentence_with_its_reason(
    gpu: FakeGpu, plan: Path
) -> None:
    gpu.plan_is_foreign = True
    with pytest.raises(BundleError) as caught:
        TensorRTEngine(plan)
    sentence = "TensorRT 10.13.3.9 cannot load engine.plan: Version tag does not match"
    assert str(caught.value) == sentence
    assert not any(gpu.live.values()), gpu.live


def test_an_engine_of_another_signature_is_refused(
    gpu: FakeGpu, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OUTPUTS_OF_FAKE, "class_ids", ("INT64", (1, 5)))
    with pytest.raises(BundleError, match="output class_ids int64"):
        TensorRTEngine(plan)


def test_copies_that_do_not_fit_are_refused_before_they_are_queued(gpu: FakeGpu) -> None:
    device = cuda_memory.Device()
    with device.current():
        stream, host, there = Stream(), PageLocked(8), DeviceMemory(7)
        with pytest.raises(ValueError, match="8 bytes do not fit into the 7"):
            stream.copy_in(there, host.view((8,), np.uint8))
        with pytest.raises(ValueError, match="8 bytes do not fit into the 7"):
            stream.copy_out(host.view((2,), np.float32), there)
        with pytest.raises(ValueError, match="12 bytes do not fit into the 8"):
            host.view((3,), np.float32)
        host.free()
        there.free()
        stream.free()
    device.close()
    assert not any(gpu.live.values()), gpu.live
