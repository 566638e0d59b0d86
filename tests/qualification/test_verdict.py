"""The status that gates come to, why it is no higher, and what is kept of it."""

from pathlib import Path

import pytest

from models import status
from models.status import QualificationRecord, Status
from qualification import verdict
from qualification.gates import Gate
from qualification.results import ModelRow

ALL = [name for _, needed in verdict.STEPS for name in sorted(needed)]
DIGEST = "d" * 64


def gates(*failed: str, without: str = "") -> list[Gate]:
    return [
        Gate(name=name, passed=name not in failed, measured={}, needed="", detail=f"why {name}")
        for name in ALL
        if name != without
    ]


def row(reached: Status, *failed: str, passed: bool = True) -> ModelRow:
    return ModelRow(
        model="m",
        passed=passed,
        status=reached,
        gates=gates(*failed),
        not_run={},
        bundle_digest=DIGEST,
        seconds=1,
    )


@pytest.mark.parametrize(
    ("missing", "highest"),
    [
        (name, (Status.PLANNED, Status.IMPLEMENTED, Status.FAMILY_VALIDATED)[step])
        for step, (_, needed) in enumerate(verdict.STEPS)
        for name in sorted(needed)
    ],
)
def test_no_status_is_reached_without_each_of_its_gates(missing: str, highest: Status) -> None:
    assert verdict.reached(gates(missing), ["native"]) is highest
    assert verdict.reached(gates(without=missing), ["native"]) is highest


def test_all_gates_reach_the_highest_and_without_an_answer_none_does() -> None:
    assert verdict.reached(gates(), ["native"]) is Status.AIPERF_QUALIFIED
    assert verdict.reached(gates(), ["reference"]) is Status.PLANNED


@pytest.mark.parametrize(
    ("judged", "expected", "passes"),
    [
        (gates(), Status.AIPERF_QUALIFIED, True),
        (gates(without="identity"), Status.AIPERF_QUALIFIED, False),  # not run
        (gates(without="identity"), Status.FAMILY_VALIDATED, True),
        # boxes over HTTP are not the engine's: no expectation is low enough
        (gates("identity"), Status.FAMILY_VALIDATED, False),
        (gates("identity"), Status.IMPLEMENTED, False),
    ],
)
def test_what_is_expected_excuses_gates_that_were_not_run_and_none_that_failed(
    judged, expected, passes
) -> None:
    assert verdict.passed(judged, verdict.reached(judged, ["native"]), expected) is passes


@pytest.mark.parametrize(
    ("judged", "not_chosen", "weights", "said"),
    [
        (gates("map"), [], "published", "gate map: why map"),
        (gates("map"), ["aiperf"], "random", "gate map: why map"),
        (gates(), [], "random", "random weights prove the path and no accuracy"),
        (
            gates(),
            ["identity", "aiperf"],
            "published",
            "stages that were not chosen: identity, aiperf",
        ),
        (gates(), [], "published", None),
    ],
)
def test_the_reason_names_the_first_cause(judged, not_chosen, weights, said) -> None:
    assert verdict.reason(judged, not_chosen, weights) == said


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path))


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize(
    ("later", "kept"),
    [
        pytest.param(row(Status.IMPLEMENTED, passed=False), Status.AIPERF_QUALIFIED, id="partial"),
        pytest.param(row(Status.IMPLEMENTED, "map", passed=False), Status.IMPLEMENTED, id="failed"),
        pytest.param(
            row(Status.PLANNED, "bundle", passed=False), Status.AIPERF_QUALIFIED, id="other files"
        ),
    ],
)
def test_a_failure_lowers_the_status_and_a_run_of_chosen_stages_does_not(
    later: ModelRow, kept: Status
) -> None:
    before = QualificationRecord(status=Status.AIPERF_QUALIFIED, run="before", date="d")
    status.write(DIGEST, before)
    verdict.record(later, "later", promote=False)
    found = status.read(DIGEST)
    assert found is not None
    assert found.status is kept


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize(
    ("judged", "promote", "signed"),
    [
        pytest.param(row(Status.AIPERF_QUALIFIED), True, True, id="passed"),
        pytest.param(row(Status.AIPERF_QUALIFIED), False, False, id="not asked for"),
        pytest.param(row(Status.AIPERF_QUALIFIED, passed=False), True, False, id="sweep failed"),
        pytest.param(row(Status.FAMILY_VALIDATED), True, False, id="expected less"),
    ],
)
def test_only_what_passed_everything_is_signed_off(
    judged: ModelRow, promote: bool, signed: bool
) -> None:
    verdict.record(judged, "run-1", promote=promote)
    found = status.promotion(DIGEST)
    assert (found is not None, judged.promoted) == (signed, signed)
    if found is not None:
        assert (found.bundle_digest, found.run, found.gates) == (DIGEST, "run-1", ALL)


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize(
    ("later", "signed"),
    [
        pytest.param(row(Status.FAMILY_VALIDATED, "identity", passed=False), False, id="a fault"),
        pytest.param(row(Status.IMPLEMENTED), True, id="chosen stages without a fault"),
        pytest.param(row(Status.PLANNED, "bundle", passed=False), True, id="other files"),
    ],
)
def test_a_failed_gate_takes_the_sign_off_back(later: ModelRow, signed: bool) -> None:
    verdict.record(row(Status.AIPERF_QUALIFIED), "run-1", promote=True)
    verdict.record(later, "run-2", promote=False)
    assert (status.promotion(DIGEST) is not None) is signed


@pytest.mark.usefixtures("own_home")
def test_what_has_no_bundle_leaves_no_record(tmp_path: Path) -> None:
    verdict.record(
        row(Status.PLANNED).model_copy(update={"bundle_digest": None}), "r", promote=True
    )
    assert not list(tmp_path.rglob("*.json"))
