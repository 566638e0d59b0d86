"""Judging a saved run again: the same gates on the same evidence, beside the verdicts it was given.

Nothing is run: figures that were computed from detections, such as mAP, are computed anew, so an
edited figure shows as well as an edited verdict, and a pass without its evidence is none.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from models.errors import QualificationError
from models.status import Status
from qualification import documents, figures, judging, verdict
from qualification.gates import Gate
from qualification.results import ModelRow, Results
from qualification.saved_run import SavedRun, reading
from qualification.stages import StageResult, needs
from qualification.target import Target

_SAME = 1e-6  # relative and absolute: sums differ in the last bits between machines


class Rejudged(BaseModel):
    """One gate, then and now. then: None where it was not judged. now: None where nothing in the
    folder can be judged. detail: what else differs than the verdict."""

    model_config = ConfigDict(extra="forbid")

    model: str
    stage: str
    gate: str
    then: bool | None
    now: bool | None
    detail: str

    @property
    def agrees(self) -> bool:
        # a stage that could not run failed, and left nothing to judge
        no_evidence = self.then is False and self.now is None
        return not self.detail and (self.then == self.now or no_evidence)


class ModelVerdict(BaseModel):
    """A model's status, then (None: the run did not finish) and now.

    figures: those of results.json that the evidence does not give.
    """

    model_config = ConfigDict(extra="forbid")

    model: str
    then: str | None
    now: str
    gates: list[Rejudged]
    figures: list[str]

    @property
    def agrees(self) -> bool:
        gates_agree = all(gate.agrees for gate in self.gates)
        return self.then in (None, self.now) and gates_agree and not self.figures


def rejudge(run: SavedRun, models: Collection[str] = ()) -> list[ModelVerdict]:
    """Every model that left evidence or has a row, or those of these names.

    Raises:
        QualificationError: the evidence is damaged, or there is none of a name.
    """
    rows = {row.model: row for row in run.results.rows} if run.results else {}
    names = [name for name in dict.fromkeys([*run.targets, *rows]) if not models or name in models]
    if missing := set(models).difference(names):
        raise QualificationError(f"{run.folder} has no model {', '.join(sorted(missing))}")
    return [_model(run, name, rows.get(name)) for name in names]


def _model(run: SavedRun, name: str, row: ModelRow | None) -> ModelVerdict:
    results: dict[str, StageResult] = {}
    lines: list[Rejudged] = []
    if name in run.targets:
        # a stage that the row leaves out lies there from an earlier attempt at this run
        left_out = row.not_run if row else {}
        results, lines = _stages(run.targets[name], left_out)
        for stage, saved in run.stale[name].items():
            if stage not in left_out:
                why = "of another bundle, dataset or setting than bundle.json names"
                lines += _unjudged(name, saved, why)
    judged = [gate for result in results.values() for gate in result.gates]
    if row is not None:
        lines += [*_row_beside(row, lines)]
        judged += [gate for gate in row.gates if not gate.passed]
    now = verdict.reached(judged, results)
    with reading(f"{name}'s row"):
        wrong = [*_figures(run.results, row, now, judged, results)] if run.results and row else []
    then = row.status.value if row else None
    return ModelVerdict(model=name, then=then, now=now.value, gates=lines, figures=wrong)


def _stages(
    target: Target, left_out: Collection[str]
) -> tuple[dict[str, StageResult], list[Rejudged]]:
    """Each saved stage judged anew, and its gates then and now."""
    results: dict[str, StageResult] = {}
    lines: list[Rejudged] = []
    for stage, saved in target.results.items():
        if stage in left_out:
            continue
        if missing := sorted(set(needs(stage)) - target.results.keys()):
            why = f"its evidence needs {', '.join(f'{each}.json' for each in missing)}"
            lines += _unjudged(target.name, saved, why)
            continue
        with reading(f"{target.name}/{stage}.json"):
            results[stage] = again = _again(target, stage, saved)
        lines += _beside(target.name, stage, saved.gates, again.gates)
    return results, lines


def _again(target: Target, stage: str, saved: StageResult) -> StageResult:
    data = judging.compute(target, stage) if stage in judging.COMPUTED else saved.data
    return saved.model_copy(update={"data": data, "gates": judging.judge(target, stage, data)})


def _unjudged(model: str, saved: StageResult, why: str) -> list[Rejudged]:
    return [
        Rejudged(
            model=model, stage=saved.stage, gate=gate.name, then=gate.passed, now=None, detail=why
        )
        for gate in saved.gates
    ]


def _beside(model: str, stage: str, then: list[Gate], now: list[Gate]) -> list[Rejudged]:
    before, after = ({gate.name: gate for gate in gates} for gates in (then, now))
    lines = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            detail = "judged only now" if old is None else "judged only then"
        else:
            detail = "; ".join(_different(_rests_on(old), _rests_on(new)))
        lines.append(
            Rejudged(
                model=model,
                stage=stage,
                gate=name,
                then=old.passed if old else None,
                now=new.passed if new else None,
                detail=detail,
            )
        )
    return lines


def _rests_on(gate: Gate) -> dict[str, Any]:
    return {**gate.measured, "needed": gate.needed}


def _row_beside(row: ModelRow, lines: list[Rejudged]) -> Iterator[Rejudged]:
    """Verdicts of results.json that are not those of the stages, or that no stage gave."""
    stages = {line.gate: line for line in lines}
    stated = {gate.name: gate.passed for gate in row.gates}
    for name in dict.fromkeys([*stated, *stages]):
        line, then = stages.get(name), stated.get(name)
        if line is None:
            detail = "no evidence of it in the folder" if then else ""
        elif line.then == then:
            continue
        else:
            detail = "results.json does not say what the stage does"
        now = line.then if line else None
        yield Rejudged(
            model=row.model, stage="results.json", gate=name, then=then, now=now, detail=detail
        )


def _figures(
    run: Results,
    row: ModelRow,
    now: Status,
    judged: Sequence[Gate],
    results: Mapping[str, StageResult],
) -> Iterator[str]:
    """What else results.json states and the evidence does not give."""
    blank = dict.fromkeys(figures.STATED, None) | {"sweep": []}
    fresh = row.model_copy(update=blank)
    figures.state(fresh, results)
    documents_ = (one.model_dump(mode="json", include=set(figures.STATED)) for one in (row, fresh))
    then, found = ({**each, "sweep": _by_point(each["sweep"])} for each in documents_)
    yield from _different(then, found)
    if row.passed and not verdict.passed(judged, now, run.expected):
        failed = [gate.name for gate in judged if not gate.passed]
        why = f"gate {failed[0]} failed" if failed else f"{now.value} does not pass"
        yield f"passed was True, {why}"
    if run.passed and not row.passed:
        yield "results.json says that every model passed, and this one did not"


def _by_point(sweep: list[dict[str, Any]]) -> dict[str, Any]:
    """A saved run's points are read in another order than they ran in."""
    return {each["point"]: each for each in sweep}


def _different(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, old, new in documents.differences(then, now, _same):
        if isinstance(old, list | dict) or isinstance(new, list | dict):
            yield f"{name} is not the same"
        else:
            yield f"{name} was {old}, is {new}"


def _same(then: Any, now: Any) -> bool:
    if isinstance(then, dict) and isinstance(now, dict):
        return then.keys() == now.keys() and all(_same(then[name], now[name]) for name in then)
    if isinstance(then, list) and isinstance(now, list):
        return len(then) == len(now) and all(map(_same, then, now))
    if isinstance(then, float) and isinstance(now, float):
        return math.isclose(then, now, rel_tol=_SAME, abs_tol=_SAME)
    return bool(then == now)
