"""Judging a saved run again: the same gates on the same evidence, beside the verdicts it was given.

Nothing is run: figures that were computed from detections, such as mAP, are computed anew, so an
edited figure shows as well as an edited verdict.
"""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from models.errors import QualificationError
from qualification import judging, verdict
from qualification.gates import Gate
from qualification.saved_run import SavedRun
from qualification.stages import StageResult
from qualification.target import Target

_SAME = 1e-6  # relative and absolute: sums differ in the last bits between machines


class Rejudged(BaseModel):
    """One gate, then and now. now: None where its stage left no evidence to judge."""

    model_config = ConfigDict(extra="forbid")

    model: str
    stage: str
    gate: str
    then: bool | None
    now: bool | None
    detail: str

    @property
    def agrees(self) -> bool:
        return self.then == self.now and not self.detail


class ModelVerdict(BaseModel):
    """A model's status, then (None: the run did not finish) and now."""

    model_config = ConfigDict(extra="forbid")

    model: str
    then: str | None
    now: str
    gates: list[Rejudged]

    @property
    def agrees(self) -> bool:
        return self.then in (None, self.now) and all(gate.agrees for gate in self.gates)


def rejudge(run: SavedRun) -> list[ModelVerdict]:
    """Every model that left evidence.

    Raises:
        QualificationError: the evidence of a stage is not whole.
    """
    rows = {row.model: row for row in run.results.rows} if run.results else {}
    found = []
    for name, target in run.targets.items():
        judged: list[Gate] = []
        lines: list[Rejudged] = []
        for stage, saved in target.results.items():
            now = _again(target, stage, saved)
            judged += now
            lines += _beside(name, stage, saved.gates, now)
        row = rows.get(name)
        if row is not None:
            # a stage that could not run left a verdict and no evidence: it stands as it was
            seen = {line.gate for line in lines}
            judged += [gate for gate in row.gates if gate.name not in seen]
            lines += _row_against(name, row.gates, lines)
        now_status = verdict.reached(judged, target.results)
        found.append(
            ModelVerdict(
                model=name,
                then=row.status.value if row else None,
                now=now_status.value,
                gates=lines,
            )
        )
    return found


def _again(target: Target, stage: str, saved: StageResult) -> list[Gate]:
    try:
        data = judging.compute(target, stage) if stage in judging.COMPUTED else saved.data
        return judging.judge(target, stage, data)
    except (KeyError, TypeError, ValueError) as error:  # ValidationError is a ValueError
        raise QualificationError(
            f"{target.name}: the evidence of the stage {stage} cannot be judged: something is "
            f"missing or of another kind ({type(error).__name__})"
        ) from error


def _beside(model: str, stage: str, then: list[Gate], now: list[Gate]) -> list[Rejudged]:
    before, after = ({gate.name: gate for gate in gates} for gates in (then, now))
    lines = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        lines.append(
            Rejudged(
                model=model,
                stage=stage,
                gate=name,
                then=old.passed if old else None,
                now=new.passed if new else None,
                detail=_difference(old.measured, new.measured) if old and new else "",
            )
        )
    return lines


def _row_against(model: str, row: list[Gate], lines: list[Rejudged]) -> list[Rejudged]:
    """Verdicts in results.json that are not those of the stages."""
    saved = {line.gate: line.then for line in lines}
    return [
        Rejudged(
            model=model,
            stage="results.json",
            gate=gate.name,
            then=gate.passed,
            now=saved[gate.name],
            detail="results.json has another verdict than the stage",
        )
        for gate in row
        if gate.name in saved and saved[gate.name] != gate.passed
    ]


def _difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Which measured figures are not the same; empty when all are."""
    names = [name for name in {**then, **now} if not _same(then.get(name), now.get(name))]
    return "; ".join(f"{name} was {then.get(name)}, is {now.get(name)}" for name in names)


def _same(then: Any, now: Any) -> bool:
    if isinstance(then, float) and isinstance(now, float):
        return math.isclose(then, now, rel_tol=_SAME, abs_tol=_SAME)
    return bool(then == now)
