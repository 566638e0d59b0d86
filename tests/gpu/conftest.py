"""What needs an NVIDIA GPU is skipped where there is none, and says so."""

from collections.abc import Iterator

import pytest

from models import cuda_memory, gpu
from models.cuda_memory import Device
from models.errors import BundleError
from models.gpu import Gpu


@pytest.fixture(scope="session")
def card() -> Gpu:
    found = gpu.find()
    if found is None:
        pytest.skip("no NVIDIA GPU on this machine")
    return found


@pytest.fixture
def device(card: Gpu) -> Iterator[Device]:
    """The GPU's context, current in the test's thread."""
    try:
        cuda_memory.pycuda_driver()
    except BundleError as error:
        pytest.skip(str(error))
    made = Device()
    with made.current():
        yield made
    made.close()
