"""A run's folder belongs to one campaign at a time."""

from pathlib import Path

import pytest

from models.errors import QualificationError
from qualification.run_folder import claim


def test_two_campaigns_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    with (
        claim(tmp_path, None) as one,
        claim(tmp_path, None) as other,
        claim(tmp_path, None) as last,
    ):
        assert len({one, other, last}) == 3
        assert all(folder.is_dir() for folder in (one, other, last))


def test_the_newest_unfinished_run_that_nobody_holds_is_taken_up(tmp_path: Path) -> None:
    for name in ("20260101-000000", "20260102-000000", "20260103-000000"):
        (tmp_path / name).mkdir()
    (tmp_path / "20260103-000000" / "results.json").touch()
    with claim(tmp_path, None) as one, claim(tmp_path, None) as other:
        assert (one.name, other.name) == ("20260102-000000", "20260101-000000")


def test_a_campaign_that_has_ended_without_results_leaves_its_folder_free(tmp_path: Path) -> None:
    with claim(tmp_path, None) as first:
        pass
    with claim(tmp_path, None) as again:
        assert again == first


def test_a_folder_that_was_asked_for_is_refused_while_it_is_held(tmp_path: Path) -> None:
    with (
        claim(tmp_path, tmp_path / "run"),
        pytest.raises(QualificationError, match="another campaign is writing to"),
        claim(tmp_path, tmp_path / "run"),
    ):
        pass


def test_a_finished_run_is_never_written_to(tmp_path: Path) -> None:
    with claim(tmp_path, tmp_path / "run") as folder:
        (folder / "results.json").touch()
    with (
        pytest.raises(QualificationError, match="holds a finished run"),
        claim(tmp_path, tmp_path / "run"),
    ):
        pass
