"""Which GPU there is, asked of the driver: here of one that answers as written down in cuda.h."""

import ctypes
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from models import gpu

IDENTITY = uuid.UUID("2a6b0c5e-63f0-4d6f-9f5a-0123456789ab")
CALLS = [
    *("cuInit", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceGetUuid_v2"),
    *("cuDriverGetVersion", "nvmlInit_v2", "nvmlSystemGetDriverVersion"),
]


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    gpu.find.cache_clear()
    yield
    gpu.find.cache_clear()


class Driver:
    """libcuda and libnvidia-ml in one; `failing` answers with an error."""

    def __init__(self, failing: str | None = None) -> None:
        self.failing = failing

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            if name == self.failing:
                return 100
            self.fill(name, [getattr(each, "_obj", each) for each in arguments])
            return 0

        return call

    def fill(self, name: str, arguments: list[Any]) -> None:
        if name == "cuDeviceGetCount":
            arguments[0].value = 4
        elif name == "cuDeviceGet":
            assert arguments[1] == 0
        elif name == "cuDeviceGetName":
            arguments[0].value = b"NVIDIA H200"
        elif name == "cuDeviceGetAttribute":
            arguments[0].value = {75: 9, 76: 0}[arguments[1]]
        elif name == "cuDeviceGetUuid_v2":
            ctypes.memmove(arguments[0], IDENTITY.bytes, 16)
        elif name == "cuDriverGetVersion":
            arguments[0].value = 13010
        elif name == "nvmlSystemGetDriverVersion":
            arguments[0].value = b"580.159.04"
        elif name == "nvmlDeviceGetHandleByUUID":
            assert arguments[0] == b"GPU-2a6b0c5e-63f0-4d6f-9f5a-0123456789ab"
        elif name == "nvmlDeviceGetMemoryInfo":
            arguments[1].total, arguments[1].free, arguments[1].used = 100, 70, 30


def test_a_gpu_is_described_by_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    found = gpu.find()
    assert found is not None
    assert (found.name, found.compute_capability) == ("NVIDIA H200", "9.0")
    assert (found.driver, found.cuda) == ("580.159.04", "13.1")
    assert str(found) == "NVIDIA H200 sm90"
    assert gpu.used_memory(found) == 30
    assert gpu.count() == 4


@pytest.mark.parametrize("failing", CALLS)
def test_a_driver_that_fails_is_no_gpu(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(failing))
    assert gpu.find() is None


def test_without_a_driver_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert gpu.find() is None
    assert gpu.count() == 0
