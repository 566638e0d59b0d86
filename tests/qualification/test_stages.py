"""Stages: which ones a choice brings, and that only whole results are read again."""

from pathlib import Path

import pytest

from models.errors import QualificationError
from qualification import stages
from qualification.stages import STAGES, StageResult


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ([], ("bundle",)),
        (["native"], ("bundle", "native")),
        (["dataset"], ("bundle", "native", "reference", "dataset")),
        (["probes", "identity"], ("bundle", "native", "identity", "probes")),
        (["bundle-after"], ("bundle", "bundle-after")),
        (["aiperf"], STAGES),  # nothing is timed that was not validated
    ],
)
def test_a_stage_brings_those_it_needs_in_order(asked: list[str], chosen: tuple[str, ...]) -> None:
    assert stages.choose(asked) == chosen


def test_an_unknown_stage_is_named_with_those_there_are() -> None:
    with pytest.raises(QualificationError, match=r"no such stage: speed; there are bundle, native"):
        stages.choose(["native", "speed"])


def test_a_result_is_read_as_it_was_saved_and_half_a_file_is_none(tmp_path: Path) -> None:
    file = stages.path(tmp_path, "m", "native")
    assert stages.saved(file) is None
    result = StageResult(stage="native", key="k", gates=[], data={"seen": [1]}, seconds=1.5)
    stages.save(file, result)
    assert stages.saved(file) == result
    assert [one.name for one in file.parent.iterdir()] == ["native.json"]


def test_a_key_differs_where_any_part_does() -> None:
    keys = {
        stages.digest("d", 0.25, {"replicas": 1}),
        stages.digest("d", 0.25, {"replicas": 2}),
        stages.digest("d", 0.5, {"replicas": 1}),
        stages.digest("d", 0.25),
    }
    assert len(keys) == 4
