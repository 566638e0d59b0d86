"""The qualification record belongs to one bundle's digest, and the latest campaign's stands."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from models import status
from models.status import Promotion, QualificationRecord, Status

RECORD = QualificationRecord(status=Status.FAMILY_VALIDATED, run="run-1", date="2026-12-01")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path))
    return tmp_path


def test_a_bundle_no_campaign_has_judged_has_no_record() -> None:
    assert status.read("abc") is None


def test_a_record_is_read_as_it_was_written_and_for_its_own_bundle_alone() -> None:
    status.write("abc", RECORD)
    assert status.read("abc") == RECORD
    assert status.read("abd") is None


def test_the_latest_campaign_replaces_the_record_and_leaves_no_other_file(own_home: Path) -> None:
    later = RECORD.model_copy(update={"status": Status.IMPLEMENTED, "run": "run-2"})
    status.write("abc", RECORD)
    status.write("abc", later)
    assert status.read("abc") == later
    assert [path.name for path in (own_home / "qualification").iterdir()] == ["abc.json"]


def test_a_sign_off_is_kept_beside_the_record_and_for_its_own_bundle_alone() -> None:
    sign_off = Promotion(bundle_digest="abc", run="run-1", date="2026-12-01", gates=["identity"])
    status.write("abc", RECORD)
    status.promote(sign_off)
    assert (status.promotion("abc"), status.read("abc")) == (sign_off, RECORD)
    assert status.promotion("abd") is None


def test_the_statuses_are_the_four_of_the_design_in_their_order() -> None:
    assert [step.value for step in Status] == [
        "planned",
        "implemented",
        "family-validated",
        "aiperf-qualified",
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"status": "perfect", "run": "r", "date": "d"}',
        '{"status": "planned", "run": "r"}',
        '{"status": "planned", "run": "r", "date": "d", "note": "n"}',
    ],
)
def test_a_record_that_is_none_is_refused(own_home: Path, text: str) -> None:
    (own_home / "qualification").mkdir()
    (own_home / "qualification" / "abc.json").write_text(text)
    with pytest.raises(ValidationError):
        status.read("abc")
