"""What gates come to: a model's status, the reason why it is not higher, and the records of it
that `/v1/models` shows."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from models import status
from models.status import Promotion, QualificationRecord, Status
from qualification.gates import Gate
from qualification.results import ModelRow

# Each step with the gates it needs besides those of the steps before.
STEPS = (
    (Status.IMPLEMENTED, {"bundle", "reconciliation"}),
    (Status.FAMILY_VALIDATED, {"owning-case", "reference-floor", "map", "map50"}),
    (
        Status.AIPERF_QUALIFIED,
        {
            *("identity", "repeatable", "any-order", "no-cache"),
            *("aiperf-errors", "aiperf-responses", "aiperf-joins"),
            *("bundle-after", "unchanged"),
        },
    ),
)


def reached(judged: Iterable[Gate], done: Iterable[str]) -> Status:
    """The highest step whose own gates, and those of every step before, have passed.

    done: stages that have a result; without `native` the model has answered nothing.
    """
    passed = {gate.name for gate in judged if gate.passed}
    highest = Status.PLANNED
    for step, needed in STEPS:
        if not needed <= passed or "native" not in done:
            break
        highest = step
    return highest


def passed(judged: Iterable[Gate], status: Status, expected: Status) -> bool:
    """Whether a model passes: its status is at least the expected one, and no gate failed.

    A status below the highest says as little of a gate that failed on the way to the next one as of
    one that was never run, so `expected` alone would let the failed one through. The gates of a
    sweep's points count as all others.
    """
    return status.reaches(expected) and all(gate.passed for gate in judged)


def reason(judged: Sequence[Gate], not_run: Sequence[str], weights: str | None) -> str | None:
    """Why the status is not the highest, or a sweep failed; None when neither is so.

    not_run: stages that were left out by the caller's choice. weights: of the bundle, if known.
    """
    for gate in judged:
        if not gate.passed:
            return f"gate {gate.name}: {gate.detail}"
    if weights == "random":
        return "random weights prove the path and no accuracy"
    return f"stages that were not chosen: {', '.join(not_run)}" if not_run else None


def record(row: ModelRow, run: str, *, promote: bool) -> None:
    """Keep the status under the bundle's digest; with `promote` sign off one that passed all.

    A gate that failed takes back the sign-off of a run before it. A run of chosen stages that found
    no fault takes nothing back from a whole one, and files that are not what their digest says take
    nothing from the bundle whose digest it is.
    """
    failed = {gate.name for gate in row.gates if not gate.passed}
    if row.bundle_digest is None or failed & {"bundle", "bundle-after"}:
        return
    date = datetime.now(UTC).date().isoformat()
    before = status.read(row.bundle_digest)
    if before is None or failed or row.status.reaches(before.status):
        status.write(row.bundle_digest, QualificationRecord(status=row.status, run=run, date=date))
    if failed:
        status.withdraw(row.bundle_digest)
    if promote and row.passed and row.status is Status.AIPERF_QUALIFIED:
        names = [gate.name for gate in row.gates]
        status.promote(Promotion(bundle_digest=row.bundle_digest, run=run, date=date, gates=names))
        row.promoted = True
