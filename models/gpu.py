"""The NVIDIA GPU that engines run on: which one it is, and how much of its memory is in use.

Asked of the driver itself, through ctypes: it is there wherever an engine can run, it needs no
package, and asking makes no CUDA context (which takes hundreds of megabytes of the GPU).
"""

import ctypes
import functools
import uuid
from dataclasses import dataclass

CUDA, MANAGEMENT = "libcuda.so.1", "libnvidia-ml.so.1"  # both come with the driver

# cuda.h: CUdevice_attribute
_MAJOR, _MINOR = 75, 76


@dataclass(frozen=True)
class Gpu:
    """The first GPU that this process may use; CUDA_VISIBLE_DEVICES says which one that is.

    compute_capability: such as `9.0`; driver: the driver's release, such as `580.159.04`.
    cuda: the CUDA version that the driver has.
    """

    name: str
    compute_capability: str
    driver: str
    cuda: str
    uuid: str

    def __str__(self) -> str:
        return f"{self.name} sm{self.compute_capability.replace('.', '')}"


def count() -> int:
    """GPUs that this process may use; 0 without a driver too."""
    number = ctypes.c_int()
    try:
        cuda = ctypes.CDLL(CUDA)
        _check(cuda.cuInit(0))
        _check(cuda.cuDeviceGetCount(ctypes.byref(number)))
    except OSError:
        return 0
    return number.value


@functools.cache  # a process keeps its GPU
def find() -> Gpu | None:
    """The GPU, or None where there is none, or no driver."""
    try:
        cuda = ctypes.CDLL(CUDA)
        _check(cuda.cuInit(0))
        device, name, version = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_int()
        capability = ctypes.c_int(), ctypes.c_int()
        identity = (ctypes.c_ubyte * 16)()
        _check(cuda.cuDeviceGet(ctypes.byref(device), 0))
        _check(cuda.cuDeviceGetName(name, len(name), device))
        for value, attribute in zip(capability, (_MAJOR, _MINOR), strict=True):
            _check(cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device))
        _check(cuda.cuDeviceGetUuid_v2(identity, device))
        _check(cuda.cuDriverGetVersion(ctypes.byref(version)))
        release = ctypes.create_string_buffer(80)
        _check(_management().nvmlSystemGetDriverVersion(release, len(release)))
    except OSError:
        return None
    return Gpu(
        name=name.value.decode(),
        compute_capability=f"{capability[0].value}.{capability[1].value}",
        driver=release.value.decode(),
        cuda=f"{version.value // 1000}.{version.value % 1000 // 10}",
        uuid=f"GPU-{uuid.UUID(bytes=bytes(identity))}",
    )


class _Memory(ctypes.Structure):
    """nvml.h: nvmlMemory_t."""

    _fields_ = [(field, ctypes.c_ulonglong) for field in ("total", "free", "used")]


def used_memory(gpu: Gpu) -> int:
    """Bytes of the GPU's memory that are in use, by any process.

    Raises:
        OSError: the driver does not say.
    """
    return int(_memory(gpu).used)


def total_memory(gpu: Gpu) -> int:
    """Bytes of memory that the GPU has.

    Raises:
        OSError: the driver does not say.
    """
    return int(_memory(gpu).total)


def _memory(gpu: Gpu) -> _Memory:
    library = _management()
    handle, memory = ctypes.c_void_p(), _Memory()
    _check(library.nvmlDeviceGetHandleByUUID(gpu.uuid.encode(), ctypes.byref(handle)))
    _check(library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)))
    return memory


def _management() -> ctypes.CDLL:
    library = ctypes.CDLL(MANAGEMENT)
    _check(library.nvmlInit_v2())  # counted by NVML; it is never shut down
    return library


def _check(status: int) -> None:
    """Raises OSError when a call of the driver failed: its functions return 0 for success."""
    if status != 0:
        raise OSError(f"the NVIDIA driver answers with error {status}")
