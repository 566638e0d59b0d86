"""CUDA by PyCUDA on a real GPU: copies, streams at once, graphs, and memory that comes back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from models import gpu
from models.cuda_memory import Device, DeviceMemory, Graph, PageLocked, Stream, has_graphs
from models.errors import BundleError
from models.gpu import Gpu

pytestmark = [
    pytest.mark.gpu,
    # nvcc's remarks, and what PyCUDA's compiler imports
    pytest.mark.filterwarnings("default"),
]

MIB = 1 << 20
KERNELS = """
extern "C" __global__ void triple(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 3 * in[i] + 1;
}
extern "C" __global__ void spin(long long cycles) {
    long long began = clock64();
    while (clock64() - began < cycles) {}
}
"""

Launch = Callable[..., None]


@pytest.fixture
def kernel(device: Device) -> Callable[[str], Any]:
    """Kernels by name; they need nvcc."""
    compiler = pytest.importorskip("pycuda.compiler")
    module = compiler.SourceModule(KERNELS, no_extern_c=True)
    return lambda name: module.get_function(name)


@contextmanager
def pair(nbytes: int) -> Iterator[tuple[PageLocked, DeviceMemory]]:
    host, there = PageLocked(nbytes), DeviceMemory(nbytes)
    try:
        yield host, there
    finally:
        host.free()
        there.free()


@contextmanager
def stream() -> Iterator[Stream]:
    made = Stream()
    try:
        yield made
    finally:
        made.synchronize()
        made.free()


@pytest.mark.parametrize("nbytes", [1, 4097, 640 * 640 * 3, 1333 * 1333 * 3])
def test_page_locked_memory_comes_back_as_it_went(device: Device, nbytes: int) -> None:
    values = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    with stream() as queue, pair(nbytes) as (host, there):
        content = host.view((nbytes,), np.uint8)
        content[:] = values
        queue.copy_in(there, content)
        queue.synchronize()
        content[:] = ~values
        queue.copy_out(content, there)
        queue.synchronize()
        np.testing.assert_array_equal(content, values)


@pytest.mark.parametrize("streams", [2, 1], ids=["two streams", "one stream"])
def test_one_slot_copies_while_the_other_computes(
    device: Device, kernel: Callable[[str], Any], streams: int
) -> None:
    """By events on the GPU: the copy ends before a kernel that was started first. On one stream it
    cannot, which shows that the events tell the two apart."""
    spin = kernel("spin")
    with stream() as computing, stream() as other, pair(64 * MIB) as (host, there):
        copying = other if streams == 2 else computing
        content = host.view((64 * MIB,), np.uint8)
        copying.copy_in(there, content)  # the first copy and launch set things up
        spin(np.int64(1000), block=(1, 1, 1), grid=(1, 1), stream=computing._stream)
        computing.synchronize()
        copying.synchronize()
        began = computing.record()
        # 0.05 to 0.2 s at 1 to 2 GHz; the copy takes some milliseconds
        spin(np.int64(10**8), block=(1, 1, 1), grid=(1, 1), stream=computing._stream)
        computed = computing.record()
        copying.copy_in(there, content)
        copied = copying.record()
        computing.synchronize()
        copying.synchronize()
        assert computed.ms_since(began) > 20
        overlapped = copied.ms_since(began) < computed.ms_since(began)
        assert overlapped == (streams == 2), (copied.ms_since(began), computed.ms_since(began))
        del began, computed, copied


def test_one_stream_waits_for_a_mark_on_another(
    device: Device, kernel: Callable[[str], Any]
) -> None:
    spin = kernel("spin")
    with stream() as first, stream() as second:
        began = first.record()
        spin(np.int64(10**8), block=(1, 1, 1), grid=(1, 1), stream=first._stream)
        second.wait(first.record())
        ended = second.record()
        second.synchronize()
        assert ended.ms_since(began) > 20
        del began, ended


def test_a_replayed_graph_gives_what_eager_calls_give(
    device: Device, kernel: Callable[[str], Any]
) -> None:
    if not has_graphs():
        pytest.skip("cuda-bindings is not installed")
    count, triple = 100_003, kernel("triple")
    with stream() as queue, pair(4 * count) as (host, there), pair(4 * count) as (back, made):
        given, found = (each.view((count,), np.float32) for each in (host, back))

        def run() -> None:
            queue.copy_in(there, given)
            triple(
                np.uint64(there.address),
                np.uint64(made.address),
                np.int32(count),
                block=(256, 1, 1),
                grid=(count // 256 + 1, 1),
                stream=queue._stream,
            )
            queue.copy_out(found, made)

        graph = Graph(queue)
        given[:] = found[:] = 0
        run()
        queue.synchronize()
        found[:] = -1
        with graph.captured():
            run()
        assert (found == -1).all()  # recorded, not run
        for seed in range(3):
            values = np.random.default_rng(seed).random(count, np.float32)
            given[:] = values
            run()
            queue.synchronize()
            eager = found.copy()
            found[:] = 0
            graph.launch()
            queue.synchronize()
            np.testing.assert_array_equal(found, eager)
            np.testing.assert_allclose(found, 3 * values + 1, rtol=1e-6)
        graph.free()


def test_memory_that_is_not_there_is_refused_with_what_there_is(device: Device) -> None:
    with pytest.raises(BundleError, match=r"the GPU's memory is full: \d+ MiB more .* MiB are"):
        DeviceMemory(1 << 50)


def a_load(card: Gpu) -> None:
    """Everything an engine makes, and gives back in another thread."""
    device = Device()
    with device.current():
        made: list[Any] = [Stream(), PageLocked(32 * MIB), DeviceMemory(256 * MIB)]
        made[0].copy_in(made[2], made[1].view((32 * MIB,), np.uint8))
        made[0].synchronize()

    def unload() -> None:
        with device.current():
            for each in reversed(made):
                each.free()
        device.close()

    thread = threading.Thread(target=unload)
    thread.start()
    thread.join()


def test_fifty_loads_leave_the_memory_as_it_was(card: Gpu) -> None:
    pytest.importorskip("pycuda.driver")
    a_load(card)
    before = gpu.used_memory(card)
    for _ in range(50):
        a_load(card)
    assert abs(gpu.used_memory(card) - before) < 16 * MIB


def test_the_driver_says_how_much_memory_there_is(card: Gpu) -> None:
    assert 0 < gpu.used_memory(card) < gpu.total_memory(card)
    assert gpu.total_memory(card) > 1 << 30
