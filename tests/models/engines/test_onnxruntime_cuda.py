"""ONNX Runtime CUDA without a GPU: what it refuses; and its binding, with the CPU's provider in
CUDA's place. On a real GPU: tests/gpu."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from models.engines import onnxruntime_cuda
from models.engines.onnxruntime_cpu import OnnxRuntimeEngine
from models.engines.onnxruntime_cuda import OnnxRuntimeCudaEngine
from models.errors import BundleError
from tests.models.engines.fake_cuda import install
from tests.models.test_tensorrt_build import network

SIZES = [(8, 12), (3, 5), (12, 8), (20, 30)]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    onnx.save(network("height", "width"), tmp_path / "engine.onnx")
    return tmp_path / "engine.onnx"


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime_cuda, "missing", lambda: None)
    monkeypatch.setattr(onnxruntime_cuda, "CUDA", "CPUExecutionProvider")
    monkeypatch.setattr(onnxruntime_cuda, "settings", lambda path: {})
    monkeypatch.setattr(onnxruntime_cuda.onnxruntime, "preload_dlls", lambda: None)


@pytest.mark.skipif(onnxruntime_cuda.missing() is None, reason="this machine has the provider")
def test_a_machine_without_the_provider_is_told_how_to_install_it(graph: Path) -> None:
    with pytest.raises(BundleError) as caught:
        OnnxRuntimeCudaEngine(graph, largest=(20, 30), threads=1)
    assert str(caught.value).startswith("engine onnxruntime-cuda cannot run because ")
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_does_not_load_is_refused_and_not_replaced_by_the_cpu(
    graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime_cuda, "missing", lambda: None)
    monkeypatch.setattr(onnxruntime_cuda.onnxruntime, "preload_dlls", lambda: None)
    with pytest.raises(
        BundleError, match=r"CUDA provider does not load .*onnxruntime-gpu\[cuda,cudnn\]"
    ):
        OnnxRuntimeCudaEngine(graph, largest=(20, 30), threads=1)


@pytest.mark.parametrize("pycuda", [True, False], ids=["page-locked", "without PyCUDA"])
def test_bound_memory_is_reused_for_images_of_any_size_up_to_the_largest(
    graph: Path, on_the_cpu: None, monkeypatch: pytest.MonkeyPatch, pycuda: bool
) -> None:
    simulated = install(monkeypatch) if pycuda else None
    bound = OnnxRuntimeCudaEngine(graph, largest=(20, 30), threads=1)
    plain = OnnxRuntimeEngine(graph, threads=1)
    addresses = set()
    for seed, size in enumerate(SIZES):
        image = np.random.default_rng(seed).integers(0, 256, (1, *size, 3), np.uint8)
        found = bound.infer(image)
        for name, expected in plain.infer(image).items():
            assert found[name].dtype == expected.dtype
            np.testing.assert_array_equal(found[name], expected)
        addresses.add(tuple(values.ctypes.data for values in found.values()))
    assert len(addresses) == 1
    with pytest.raises(ValueError, match="reshape"):
        bound.infer(np.zeros((1, 21, 30, 3), np.uint8))
    bound.close()
    if simulated is not None:
        assert sum("page-lock " in call for call in simulated.calls) == 4
        assert not any(simulated.live.values()), simulated.live


@pytest.mark.parametrize(
    ("convolutions", "size", "tf32", "search"),
    [
        ([np.float16], (64, 64), "1", "HEURISTIC"),
        ([np.float16, np.float32], (64, 64), "0", "HEURISTIC"),  # an FP32 island
        ([np.float32], ("height", "width"), "0", "DEFAULT"),
        ([np.float16], ("height", "width"), "1", "DEFAULT"),
    ],
)
def test_fp32_convolutions_keep_their_digits_and_images_of_any_size_are_planned_fast(
    tmp_path: Path,
    convolutions: list[type],
    size: tuple[int | str, int | str],
    tf32: str,
    search: str,
) -> None:
    weights = [np.ones((1, 3, 1, 1), dtype) for dtype in convolutions]
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Conv", ["values", f"w{index}"], [f"y{index}"])
            for index in range(len(weights))
        ],
        "convolutions",
        [onnx.helper.make_tensor_value_info("image", onnx.TensorProto.UINT8, [1, *size, 3])],
        [],
        [onnx.numpy_helper.from_array(each, f"w{index}") for index, each in enumerate(weights)],
    )
    onnx.save(onnx.helper.make_model(graph), tmp_path / "engine.onnx")
    found = onnxruntime_cuda.settings(tmp_path / "engine.onnx")
    assert (found["use_tf32"], found["cudnn_conv_algo_search"]) == (tf32, search)
