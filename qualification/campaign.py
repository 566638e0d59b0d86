"""A campaign: every requested model through every stage, to rows, results.json and the reports."""

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import ray
from PIL import Image

from models import status
from models.errors import DetserveError
from models.status import QualificationRecord, Status
from qualification import driver, environment, html, report, results
from qualification.aiperf import AIPerfEvidence
from qualification.driver import STAGES, StageResult
from qualification.evidence import Seen
from qualification.gates import Gate
from qualification.mean_ap import MeanAP
from qualification.pictures import annotate
from qualification.results import (
    DatasetIdentity,
    ImageSizes,
    ModelRow,
    Percentiles,
    Performance,
    Results,
)

PICTURES = 4
EARLIER = "an earlier gate failed"
PROGRESS_S = 0.5

Log = Callable[[str], None]
Progress = Callable[[str, str, int, int], None]  # model, stage, done, total


def run(
    *,
    url: str,
    entries: dict[str, dict[str, Any]],
    models: Sequence[str],
    folder: Path,
    command: str,
    expected: Status,
    log: Log,
    progress: Progress,
) -> Results:
    """Judge `models` of the application at `url`; files are written to `folder` as they exist.

    entries: `/v1/models` by name. expected: the status that a model must reach to pass.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    folder.mkdir(parents=True, exist_ok=True)
    actor = driver.start(url, folder, f"qualification-{folder.name}-{os.getpid()}")
    try:
        rows = []
        for model in models:
            row = _qualify(actor, model, entries.get(model), folder, log, progress)
            row.passed = row.status.reaches(expected)
            log(f"{model}: {row.status.value}, {'passed' if row.passed else 'FAILED'}")
            if row.reason:
                log(f"{model}: {row.reason}")
            rows.append(row)
    finally:
        ray.kill(actor)
    outcome = Results(
        run=folder.name,
        started=started,
        command=command,
        expected=expected,
        passed=bool(rows) and all(row.passed for row in rows),
        environment=environment.read(),
        rows=rows,
    )
    (folder / "results.schema.json").write_text(json.dumps(results.schema(), indent=1))
    (folder / "report.md").write_text(report.markdown(outcome))
    html.write(folder, outcome)
    # last: its presence says that the run is complete
    (folder / "results.json").write_text(outcome.model_dump_json(indent=1))
    return outcome


def _qualify(
    actor: Any,
    model: str,
    entry: dict[str, Any] | None,
    folder: Path,
    log: Log,
    progress: Progress,
) -> ModelRow:
    start = time.perf_counter()
    if entry is None or not entry["ready"]:
        reason = "the application does not serve it" if entry is None else entry["reason"]
        gate = Gate(
            name="bundle", passed=False, measured={}, needed="a served bundle", detail=reason
        )
        return _row(model, {}, [gate], dict.fromkeys(STAGES[1:], EARLIER), None, start)
    done: dict[str, StageResult] = {}
    judged: list[Gate] = []
    remaining = list(STAGES)
    not_run: dict[str, str] = {}
    if entry["weights"] == "random":
        remaining.remove("dataset")
        not_run["dataset"] = "random weights have no accuracy to measure"
    while remaining and all(gate.passed for gate in judged):
        stage = remaining.pop(0)
        try:
            result = _stage(actor, model, stage, progress)
        except DetserveError as error:
            judged.append(
                Gate(name=stage, passed=False, measured={}, needed="the stage", detail=str(error))
            )
            break
        done[stage] = result
        judged += result.gates
        took = "kept from the interrupted run" if result.kept else f"{result.seconds:.1f} s"
        log(f"{model}: {stage}, {took}")
        for gate in result.gates:
            verdict = "passed" if gate.passed else "FAILED"
            log(f"{model}: gate {gate.name} {verdict}{gate.detail and f' ({gate.detail})'}")
    not_run |= dict.fromkeys(remaining, EARLIER)
    row = _row(model, done, judged, not_run, _described(actor, model, done), start)
    row.pictures = _pictures(actor, model, done, folder)
    if row.bundle_digest is not None:
        status.write(
            row.bundle_digest,
            QualificationRecord(
                status=row.status, run=folder.name, date=datetime.now(UTC).date().isoformat()
            ),
        )
    return row


def _stage(actor: Any, model: str, stage: str, progress: Progress) -> StageResult:
    """One stage's result out of Ray's store, its progress shown meanwhile."""
    pending = actor.stage.remote(model, stage)
    while not ray.wait([pending], timeout=PROGRESS_S)[0]:
        progress(model, stage, *ray.get(actor.progress.remote()))
    try:
        (reference,) = ray.get(pending)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, DetserveError):
            raise error.cause from error
        raise
    result: StageResult = ray.get(reference)
    return result


def _described(actor: Any, model: str, done: dict[str, StageResult]) -> Any:
    return ray.get(actor.describe.remote(model)) if done else None


def _row(
    model: str,
    done: dict[str, StageResult],
    judged: list[Gate],
    not_run: dict[str, str],
    described: Any,
    start: float,
) -> ModelRow:
    passed = {gate.name for gate in judged if gate.passed}
    row = ModelRow(
        model=model,
        passed=False,
        status=_status(passed, done),
        reason=_reason(judged, described),
        gates=judged,
        not_run=not_run,
        seconds=time.perf_counter() - start,
    )
    if described is None:
        return row
    what, name, digest, paths = described
    row.checkpoint, row.family = what["checkpoint"], what["family"]
    row.bundle_digest, row.engine = what["bundle_digest"], what["engine"]
    row.precision = what["precision"]
    row.settings = {key: what[key] for key in ("canvas", "threshold", "licence", "built_with")}
    row.dataset = DatasetIdentity(name=name, digest=digest)
    row.images = _sizes(paths)
    if "dataset" in done:
        row.native, row.reference = (
            MeanAP.model_validate(done["dataset"].data[side]) for side in ("native", "reference")
        )
    if "aiperf" in done:
        row.performance = _performance(AIPerfEvidence.model_validate(done["aiperf"].data))
    return row


def _reason(judged: list[Gate], described: Any) -> str | None:
    """Why the status is not the highest; None when it is."""
    for gate in judged:
        if not gate.passed:
            return f"gate {gate.name}: {gate.detail}"
    if described is not None and described[0]["weights"] == "random":
        return "random weights prove the path and no accuracy"
    return None


def _status(passed: set[str], done: dict[str, StageResult]) -> Status:
    """The highest step whose own gates, and those of every step before, have passed."""
    steps = (
        (Status.IMPLEMENTED, {"bundle"}),
        (Status.FAMILY_VALIDATED, {"owning-case", "reference-floor", "map", "map50"}),
        (
            Status.AIPERF_QUALIFIED,
            {"identity", "aiperf-errors", "aiperf-responses", "aiperf-joins", "bundle-after"},
        ),
    )
    reached = Status.PLANNED
    for step, needed in steps:
        if not needed <= passed or "native" not in done:
            break
        reached = step
    return reached


def _performance(evidence: AIPerfEvidence) -> Performance | None:
    """None when a request has no record to join: there is then nothing to state."""
    rows = [row for row in evidence.rows if row.phase == "profiling" and row.status == 200]
    records = [evidence.records.get(row.request_id, []) for row in rows]
    if not rows or not all(len(found) == 1 and found[0].get("tasks") for found in records):
        return None
    tasks = [found[0]["tasks"][0] for found in records]
    seconds = (max(row.end_ns for row in rows) - min(row.start_ns for row in rows)) / 1e9
    return Performance(
        requests=len(rows),
        client=_percentiles([row.latency_ms for row in rows]),
        images_per_s=len(rows) / seconds,
        handler=_percentiles([found[0]["handler_ms"] for found in records]),
        queue=_percentiles([task["queue_ms"] for task in tasks]),
        task_call_wall=_percentiles([task["task_call_wall_ms"] for task in tasks]),
        stages={
            stage: _percentiles([task["stages_ms"][stage] for task in tasks])
            for stage in tasks[0]["stages_ms"]
        },
        command=evidence.command,
    )


def _percentiles(values: Sequence[float]) -> Percentiles:
    p50, p95 = np.percentile(values, [50, 95])
    return Percentiles(p50_ms=float(p50), p95_ms=float(p95))


def _sizes(paths: Sequence[Path]) -> ImageSizes:
    bytes_ = [path.stat().st_size for path in paths]
    widths, heights = [], []
    for path in paths:
        with Image.open(path) as image:
            widths.append(image.width)
            heights.append(image.height)
    return ImageSizes(
        count=len(paths),
        bytes_min=min(bytes_),
        bytes_median=int(statistics.median(bytes_)),
        bytes_max=max(bytes_),
        height_range=(min(heights), max(heights)),
        width_range=(min(widths), max(widths)),
    )


def _pictures(actor: Any, model: str, done: dict[str, StageResult], folder: Path) -> list[str]:
    """Files with the detections drawn, of the images with the most different labels."""
    if "native" not in done:
        return []
    seen = [Seen.from_json(value) for value in done["native"].data["seen"]]
    paths = {path.name: path for path in ray.get(actor.describe.remote(model))[3]}
    seen.sort(key=lambda one: (-len(set(one.labels)), one.image))
    made = []
    for one in seen[:PICTURES]:
        target = folder / model / f"{Path(one.image).stem}.jpg"
        annotate(paths[one.image], one, target)
        made.append(f"{model}/{target.name}")
    return made
