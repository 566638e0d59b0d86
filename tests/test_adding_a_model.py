"""docs/adding-a-model.md: its examples are valid, and it leaves out no family and no field."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from deployments.config import ModelArgs, parse
from models import catalogue
from models.catalogue import Checkpoint
from models.family import Family, family_names
from models.status import Status
from tests.conftest import PROJECT

PAGE = (PROJECT / "docs" / "adding-a-model.md").read_text(encoding="utf-8")
CHECKPOINT, APPLICATION, PROVED = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize(
    ("text", "status"),
    [(CHECKPOINT, Status.PLANNED), (CHECKPOINT + PROVED, Status.AIPERF_QUALIFIED)],
)
def test_the_example_is_a_checkpoint_with_and_without_what_is_proved(
    text: str, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path))
    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue" / "yolov8s-coco.yaml").write_text(text)
    assert catalogue.load("yolov8s-coco").proved.status is status


def test_the_application_serves_the_example() -> None:
    (application,) = yaml.safe_load(APPLICATION)
    assert parse(ModelArgs, application["args"]).checkpoint == yaml.safe_load(CHECKPOINT)["id"]


def test_every_field_of_a_checkpoint_is_named() -> None:
    for field in Checkpoint.model_fields:
        assert f"\n{field}:" in CHECKPOINT + PROVED or f"`{field}" in PAGE or field == "id"


def test_every_family_and_every_member_of_one_has_its_row() -> None:
    rows = "\n".join(line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `"))
    members = {name for name in vars(Family) if not name.startswith("_")}
    for name in {*family_names(), *members, *Family.__annotations__}:
        assert f"`{name}`" in rows, name


def test_its_commands_and_links_are_there() -> None:
    listed = subprocess.run(["make", "help"], cwd=PROJECT, capture_output=True, text=True).stdout
    commands = re.findall(r"^make ([a-z -]+)$|`make ([a-z-]+)`", PAGE, re.M)
    for target in " ".join(map("".join, commands)).split():
        assert f"  make {target} " in listed
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (PROJECT / "docs" / link).exists(), link
