"""Makes the page of a run folder: gathers what the template shows, and writes `report.html`.

Everything is in the one file, pictures too; the page has no script, and its own content security
policy forbids it to load anything.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from qualification import performance
from qualification.gates import Gate
from qualification.html import charts, curves, pictures, saved, truth
from qualification.html.charts import Chart, Strips
from qualification.html.pictures import Picture
from qualification.html.saved import LoadPoint, Saved
from qualification.html.truth import Truth
from qualification.report import short
from qualification.results import ModelRow, Results

NAME = "report.html"
MISSING = "its evidence is not in the run folder"


@dataclass(frozen=True)
class LoadRow:
    """A sweep's point in figures; those of time are None where no request succeeded."""

    load: str
    requests: int
    verified: bool
    images_per_s: float | None
    p50_ms: float | None
    p95_ms: float | None
    problems: list[str]


@dataclass(frozen=True)
class Sweep:
    kind: str
    rows: list[LoadRow]
    charts: list[Chart]


@dataclass(frozen=True)
class Model:
    """What the page says about one model; each `no_…` is why a part is missing, else None."""

    row: ModelRow
    anchor: str
    pictures: list[tuple[Picture, str]]  # and its data URL
    no_pictures: str | None
    accuracy: list[Chart]
    no_accuracy: str | None
    latencies: Strips | None
    no_latencies: str | None
    sweeps: list[Sweep]
    command: str | None  # AIPerf's

    @property
    def failed(self) -> list[Gate]:
        return [gate for gate in self.row.gates if not gate.passed]


def write(folder: Path, results: Results) -> Path:
    """Write `report.html` into a run folder: from its evidence alone or, for the pictures the
    first time, with the run's dataset. Returns its path."""
    models = [
        _model(folder / row.model, row, f"model-{number}", len(results.rows))
        for number, row in enumerate(results.rows, 1)
    ]
    page = folder / NAME
    scratch = page.with_suffix(".tmp")
    scratch.write_text(_render(results, models), encoding="utf-8")
    os.replace(scratch, page)
    return page


def _render(results: Results, models: Sequence[Model]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("qualification.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"short": short, "ms": milliseconds, "worded": worded}
    return environment.get_template("report.html.j2").render(
        results=results,
        models=models,
        passed=sum(row.passed for row in results.rows),
    )


def milliseconds(value: float) -> str:
    """Three digits or so, whatever the size."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def worded(value: Any) -> str:
    """A setting in words: what is null in a mapping is left out, a size has its sides joined."""
    if isinstance(value, dict):
        named = ((key, one) for key, one in value.items() if one is not None)
        return ", ".join(f"{key} {worded(one)}" for key, one in named)
    return " by ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _model(folder: Path, row: ModelRow, anchor: str, models: int) -> Model:
    evidence = saved.read(folder)
    known = truth.read(folder) if evidence.native else None
    shown = pictures.kept_or_drawn(folder, row, evidence, known, models)
    parts = performance.series(evidence.aiperf) if evidence.aiperf else {}
    accuracy = [] if "dataset" in row.not_run else _accuracy(evidence, known)
    return Model(
        row=row,
        anchor=anchor,
        pictures=[(picture, pictures.data_url(folder, picture)) for picture in shown or []],
        no_pictures=None if shown else _why_no_pictures(row, evidence, shown is None),
        accuracy=accuracy,
        no_accuracy=None if accuracy else _why_no_accuracy(row, evidence),
        latencies=charts.latencies(parts) if parts else None,
        no_latencies=None if parts else _why_no_latencies(row, evidence),
        sweeps=_sweeps(evidence.sweep),
        command=_command(evidence),
    )


def _accuracy(evidence: Saved, known: Truth | None) -> list[Chart]:
    sides = {"native": evidence.native, "reference": evidence.reference}
    if known is None or None in sides.values():
        return []
    made = {name: curves.precision_recall(known, seen or []) for name, seen in sides.items()}
    return [
        charts.precision_recall(iou, {name: found[index] for name, found in made.items()})
        for index, iou in enumerate(curves.IOUS)
    ]


def _sweeps(points: Sequence[LoadPoint]) -> list[Sweep]:
    sweeps = []
    for kind in dict.fromkeys(point.kind for point in points):
        rows = [_load_row(point) for point in points if point.kind == kind]
        timed = [
            (row.load, row.p50_ms, row.p95_ms, row.images_per_s)
            for row in rows
            if row.p50_ms is not None and row.p95_ms is not None and row.images_per_s is not None
        ]
        drawn = []
        if len(timed) > 1:
            loads, p50, p95, rate = (list(column) for column in zip(*timed, strict=True))
            places = [float(load) for load in loads]
            drawn = [
                charts.over_load(
                    f"Images per second by {kind}", "images/s", kind, places, {"images/s": rate}
                ),
                charts.over_load(
                    f"Client latency by {kind}", "client ms", kind, places, {"p50": p50, "p95": p95}
                ),
            ]
        sweeps.append(Sweep(kind, rows, drawn))
    return sweeps


def _load_row(point: LoadPoint) -> LoadRow:
    client = performance.series(point.evidence).get("client", [])
    return LoadRow(
        load=f"{point.load:g}",
        requests=len(point.evidence.rows),
        verified=bool(point.gates) and all(gate.passed for gate in point.gates),
        images_per_s=performance.images_per_s(point.evidence),
        p50_ms=float(np.percentile(client, 50)) if client else None,
        p95_ms=float(np.percentile(client, 95)) if client else None,
        problems=[f"{gate.name}: {gate.detail}" for gate in point.gates if not gate.passed],
    )


def _why(row: ModelRow, stage: str) -> str | None:
    """Why a stage has no result, as the row has it."""
    if stage in row.not_run:
        return f"stage {stage} was not run: {row.not_run[stage]}"
    for gate in row.gates:
        if gate.name == stage and not gate.passed and not gate.measured:
            return f"stage {stage} could not run: {gate.detail}"
    return None


def _why_no_pictures(row: ModelRow, evidence: Saved, dataset_missing: bool) -> str:
    if evidence.native is None:
        return _why(row, "native") or f"stage native: {MISSING}"
    if dataset_missing:
        return "none were kept in the run folder, and the run's dataset is not on this machine"
    return "the dataset has no image"


def _why_no_accuracy(row: ModelRow, evidence: Saved) -> str:
    for stage, seen in (("native", evidence.native), ("reference", evidence.reference)):
        if seen is None and (reason := _why(row, "dataset") or _why(row, stage)):
            return reason
        if seen is None:
            return f"stage {stage}: {MISSING}"
    return _why(row, "dataset") or "the run has no ground truth"


def _why_no_latencies(row: ModelRow, evidence: Saved) -> str:
    if evidence.aiperf is None:
        return _why(row, "aiperf") or f"stage aiperf: {MISSING}"
    return "no measured request succeeded"


def _command(evidence: Saved) -> str | None:
    """Without the path of this machine's AIPerf."""
    if evidence.aiperf is None:
        return None
    program, *words = evidence.aiperf.command
    return " ".join([Path(program).name, *words])
