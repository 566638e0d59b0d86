"""A model whose engine does not fit its share of the GPU is refused with the share that would do.

What the driver says of its memory is tested where there is one (tests/gpu).
"""

import pytest

from deployments.config import Resources
from deployments.fit import check, refuse
from models.building import ensure
from models.catalogue import load
from models.errors import ConfigError


@pytest.mark.parametrize(
    ("needed", "gpus", "enough"),
    [
        pytest.param(7350, 0.05, "0.06", id="YOLOv10x on an H200, as measured there"),
        pytest.param(1520, 0.01, "0.02", id="a little too much"),
        pytest.param(143_771, 0.5, "1", id="all of it"),
        pytest.param(300_000, 0.9, "2.09", id="more than there is"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would_do(needed, gpus, enough) -> None:
    with pytest.raises(ConfigError, match=f"takes {needed} MiB .*: give it {enough}$"):
        refuse("some-model", needed, gpus, 143_771)


def test_the_share_that_is_named_is_enough() -> None:
    refuse("some-model", 7350, 0.06, 143_771)


def test_an_engine_on_the_cpu_fits_anywhere(data) -> None:
    check(ensure(load("yolox-nano"), "onnxruntime", "fp32", log=print).manifest, Resources().gpus)
