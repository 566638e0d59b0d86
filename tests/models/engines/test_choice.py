"""`engine: auto` takes what can run and says why; an engine that cannot run says what it lacks."""

import sys
from collections.abc import Callable

import onnxruntime
import pytest

from models import gpu
from models.engines import onnxruntime_cuda
from models.engines.choice import Choice, resolve, resolve_precision
from models.errors import BundleError
from models.gpu import Gpu
from tests.models.engines.fake_cuda import install

H200 = Gpu("NVIDIA H200", "9.0", "580.159.04", "13.0", "GPU-0")
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
NO_TENSORRT = 'TensorRT is not installed: pip install "detserve[tensorrt]"'
NO_PYCUDA = 'PyCUDA is not installed: pip install "detserve[tensorrt]"'
NO_CUDA = (
    "the onnxruntime installed here has no CUDA: "
    "pip uninstall --yes onnxruntime && pip install --force-reinstall"
)

Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Sets up what is installed, and whether there is a GPU."""

    def make(*, tensorrt: bool, pycuda: bool, cuda: bool, device: bool) -> None:
        install(monkeypatch)
        for module, there in {"tensorrt": tensorrt, "pycuda": pycuda}.items():
            if not there:
                monkeypatch.setitem(sys.modules, module, None)
        if not pycuda:
            monkeypatch.setitem(sys.modules, "pycuda.driver", None)
        providers = [CUDA, CPU] if cuda else [CPU]
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
        monkeypatch.setattr(gpu, "find", lambda: H200 if device else None)

    return make


@pytest.mark.parametrize(
    ("tensorrt", "pycuda", "cuda", "device", "gpus", "engine", "reasons"),
    [
        (True, True, True, True, 1, "tensorrt", ["the fastest there is, on NVIDIA H200 sm90"]),
        (True, True, False, True, 0.1, "tensorrt", ["the fastest there is"]),
        (False, True, True, True, 1, "onnxruntime-cuda", ["not tensorrt because", NO_TENSORRT]),
        (True, False, True, True, 1, "onnxruntime-cuda", ["not tensorrt because", NO_PYCUDA]),
        (False, False, False, True, 1, "onnxruntime", [NO_TENSORRT, NO_CUDA]),
        (True, True, True, False, 1, "onnxruntime", ["there is no NVIDIA GPU"]),
        (True, True, True, True, 0, "onnxruntime", ["`resources.gpus` is 0"]),
    ],
)
def test_auto_takes_the_fastest_that_can_run_and_says_why(
    machine: Machine,
    tensorrt: bool,
    pycuda: bool,
    cuda: bool,
    device: bool,
    gpus: float,
    engine: str,
    reasons: list[str],
) -> None:
    machine(tensorrt=tensorrt, pycuda=pycuda, cuda=cuda, device=device)
    choice = resolve("auto", gpus=gpus)
    assert choice.engine == engine
    for reason in reasons:
        assert reason in choice.reason
    assert "\n" not in choice.reason


@pytest.mark.parametrize(
    ("engine", "lacks", "sentence"),
    [
        ("tensorrt", "tensorrt", f"engine tensorrt cannot run because {NO_TENSORRT}"),
        ("tensorrt", "pycuda", f"engine tensorrt cannot run because {NO_PYCUDA}"),
        ("tensorrt", "device", "engine tensorrt cannot run because there is no NVIDIA GPU"),
        ("onnxruntime-cuda", "cuda", f"engine onnxruntime-cuda cannot run because {NO_CUDA}"),
        ("onnxruntime-cuda", "device", "engine onnxruntime-cuda cannot run because there is no N"),
    ],
)
def test_an_engine_that_cannot_run_says_what_it_lacks_in_one_sentence(
    machine: Machine, engine: str, lacks: str, sentence: str
) -> None:
    machine(**{name: name != lacks for name in ("tensorrt", "pycuda", "cuda", "device")})
    with pytest.raises(BundleError) as caught:
        resolve(engine, gpus=1)  # type: ignore[arg-type]
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("engine", ["tensorrt", "onnxruntime-cuda"])
def test_a_gpu_engine_needs_a_part_of_a_gpu(machine: Machine, engine: str) -> None:
    machine(tensorrt=True, pycuda=True, cuda=True, device=True)
    with pytest.raises(BundleError, match=rf"engine {engine} cannot run because `resources\.gpus`"):
        resolve(engine, gpus=0)  # type: ignore[arg-type]
    assert resolve(engine, gpus=0.5).engine == engine  # type: ignore[arg-type]


def test_the_cpu_runs_everywhere(machine: Machine) -> None:
    machine(tensorrt=False, pycuda=False, cuda=False, device=False)
    asked = Choice("onnxruntime", "`engine: onnxruntime` asks for it")
    assert resolve("onnxruntime", gpus=0) == asked


def test_here_as_it_is_auto_runs_and_gives_a_reason() -> None:
    choice = resolve("auto", gpus=1)
    if gpu.find() is None:
        assert choice.engine == "onnxruntime"
        assert "not tensorrt because" in choice.reason
    else:
        assert choice.engine in ("tensorrt", "onnxruntime-cuda") or onnxruntime_cuda.missing()


@pytest.mark.parametrize(
    ("requested", "engine", "checkpoint", "expected"),
    [
        ("auto", "onnxruntime", "fp16", "fp32"),
        ("auto", "onnxruntime-cuda", "fp16", "fp16"),
        ("auto", "tensorrt", "fp16", "fp16"),
        ("auto", "tensorrt", "fp32", "fp32"),
        ("fp16", "onnxruntime", "fp32", "fp16"),
        ("fp32", "tensorrt", "fp16", "fp32"),
    ],
)
def test_the_checkpoint_s_precision_is_taken_on_a_gpu(
    requested: str, engine: str, checkpoint: str, expected: str
) -> None:
    found = resolve_precision(requested, engine, checkpoint)  # type: ignore[arg-type]
    assert found == expected
