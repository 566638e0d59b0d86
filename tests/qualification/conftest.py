"""Fixtures of the tests that run whole campaigns."""

from collections.abc import Iterator

import pytest
import yaml

from models import catalogue
from models.home import home

FEW = "yolox-nano-few"


@pytest.fixture(scope="session")
def few() -> Iterator[str]:
    """yolox-nano, catalogued a second time to be judged on eight images: a quick campaign."""
    entry = yaml.safe_load((catalogue.FOLDER / "yolox-nano.yaml").read_text())
    del entry["proved"], entry["gaps"]
    entry |= {"id": FEW, "dataset": entry["dataset"] | {"images": 8}}
    file = home() / "catalogue" / f"{FEW}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(entry))
    yield FEW
    file.unlink()
