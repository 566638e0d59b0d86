"""A campaign: every requested model through every stage, to rows, results.json and the reports."""

import json
import statistics
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image

from models.errors import DetserveError
from models.status import Status
from qualification import environment, figures, html, performance, report, results, verdict
from qualification.aiperf import QUALIFYING, Point
from qualification.evidence import Seen
from qualification.gates import Gate
from qualification.pictures import annotate
from qualification.results import DatasetIdentity, ImageSizes, ModelRow, Results
from qualification.stages import STAGES, StageResult
from qualification.supervisor import Log, Progress, Supervisor

PICTURES = 4
EARLIER = "an earlier gate failed"
NOT_CHOSEN = "not chosen"


@dataclass(frozen=True)
class Wanted:
    """What a campaign is to do.

    models: names. stages: of STAGES, in order. sweep: AIPerf's runs under load. expected: the
    status that a model must reach to pass. promote: sign off the bundles that pass.
    """

    models: Sequence[str]
    stages: Sequence[str] = STAGES
    sweep: Sequence[Point] = ()
    expected: Status = Status.AIPERF_QUALIFIED
    promote: bool = False


def run(
    *,
    url: str,
    entries: dict[str, dict[str, Any]],
    wanted: Wanted,
    folder: Path,
    command: str,
    log: Log,
    progress: Progress,
) -> Results:
    """Judge models of the application at `url`; files are written to `folder` as they exist.

    entries: `/v1/models` by name.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    points = (QUALIFYING, *wanted.sweep)
    supervisor = Supervisor(url, folder, points, log, progress)
    try:
        rows = []
        for model in wanted.models:
            row = _ModelRun(supervisor, model, wanted, folder, log).row(entries.get(model))
            log(f"{model}: {row.status.value}, {'passed' if row.passed else 'FAILED'}")
            if row.reason:
                log(f"{model}: {row.reason}")
            rows.append(row)
    finally:
        supervisor.close()
    outcome = Results(
        run=folder.name,
        started=started,
        command=command,
        expected=wanted.expected,
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


class _ModelRun:
    """One model's stages, whatever happens to them, to one row."""

    def __init__(
        self, supervisor: Supervisor, model: str, wanted: Wanted, folder: Path, log: Log
    ) -> None:
        self._supervisor, self._model, self._wanted = supervisor, model, wanted
        self._folder, self._log = folder, log
        self._done: dict[str, StageResult] = {}
        self._judged: list[Gate] = []
        self._not_run: dict[str, str] = {}

    def row(self, entry: dict[str, Any] | None) -> ModelRow:
        """entry: of `/v1/models`, None if the model is not there."""
        start = time.perf_counter()
        if entry is None or not entry["ready"]:
            reason = "the application does not serve it" if entry is None else entry["reason"]
            self._fail("bundle", "a served bundle", reason)
            self._not_run = dict.fromkeys(self._plan()[1:], EARLIER)
        else:
            self._stages(random=entry["weights"] == "random")
        row = ModelRow(
            model=self._model,
            passed=False,
            status=verdict.reached(self._judged, self._done),
            gates=self._judged,
            not_run=self._not_run,
            seconds=0,
        )
        try:
            self._describe(row)
        except Exception as error:  # the verdict stands without it
            self._unexpected("description", error)
        not_chosen = [stage for stage, why in self._not_run.items() if why == NOT_CHOSEN]
        weights = entry.get("weights") if entry else None
        row.reason = verdict.reason(self._judged, not_chosen, weights)
        row.passed = verdict.passed(self._judged, row.status, self._wanted.expected)
        verdict.record(row, self._folder.name, promote=self._wanted.promote)
        row.seconds = time.perf_counter() - start
        return row

    def _plan(self) -> list[str]:
        """Every stage in order, the sweep's points after the run at concurrency 1."""
        points = [point.name for point in self._wanted.sweep]
        after = STAGES.index("aiperf") + 1
        return [*STAGES[:after], *points, *STAGES[after:]]

    def _stages(self, random: bool) -> None:
        points = {point.name for point in self._wanted.sweep}
        stopped = False
        for stage in self._plan():
            if stage not in points and stage not in self._wanted.stages:
                self._not_run[stage] = NOT_CHOSEN
            elif stage == "dataset" and random:
                self._not_run[stage] = "random weights have no accuracy to measure"
            elif stopped:
                self._not_run[stage] = EARLIER
            else:
                passed = self._stage(stage)
                # a point that fails leaves the next one, and the look at the bundle, to be done
                stopped = not passed and stage not in points

    def _stage(self, stage: str) -> bool:
        """Run one stage and take in its gates; whether all passed. Nothing it does ends here."""
        try:
            result = self._supervisor.stage(self._model, stage)
        except DetserveError as error:
            self._fail(stage, "the stage", str(error))
            return False
        except Exception as error:
            self._unexpected(stage, error)
            return False
        self._done[stage] = result
        self._judged += result.gates
        took = "kept from the interrupted run" if result.kept else f"{result.seconds:.1f} s"
        self._log(f"{self._model}: {stage}, {took}")
        for gate in result.gates:
            outcome = "passed" if gate.passed else "FAILED"
            detail = gate.detail and f" ({gate.detail})"
            self._log(f"{self._model}: gate {gate.name} {outcome}{detail}")
        return all(gate.passed for gate in result.gates)

    def _fail(self, name: str, needed: str, detail: str) -> None:
        self._judged.append(
            Gate(name=name, passed=False, measured={}, needed=needed, detail=detail)
        )

    def _unexpected(self, what: str, error: Exception) -> None:
        """A row has no traceback, which would have paths of this machine in it."""
        self._log(f"{self._model}: {what}: {''.join(traceback.format_exception(error))}")
        kind = type(error).__name__
        self._fail(what, "the stage", f"an unexpected {kind}; the output of the run explains it")

    def _describe(self, row: ModelRow) -> None:
        """What the stages saw besides their verdicts."""
        if not self._done:
            return
        what, name, digest, paths = self._supervisor.describe(self._model)
        row.checkpoint, row.family = what["checkpoint"], what["family"]
        row.bundle_digest, row.engine = what["bundle_digest"], what["engine"]
        row.precision = what["precision"]
        row.settings = {
            key: what[key] for key in ("canvas", "threshold", "licence", "built_with", "config")
        }
        row.dataset = DatasetIdentity(name=name, digest=digest)
        row.images = _sizes(paths)
        figures.state(row, self._done)
        runs = {
            point.name: self._done[point.name]
            for point in (QUALIFYING, *self._wanted.sweep)
            if point.name in self._done
        }
        if runs:
            performance.write_requests(self._folder / self._model / "requests.jsonl", runs)
        row.pictures = _pictures(paths, self._model, self._done, self._folder)


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


def _pictures(
    paths: Sequence[Path], model: str, done: dict[str, StageResult], folder: Path
) -> list[str]:
    """Files with the detections drawn, of the images with the most different labels."""
    if "native" not in done:
        return []
    seen = [Seen.from_json(value) for value in done["native"].data["seen"]]
    by_name = {path.name: path for path in paths}
    seen.sort(key=lambda one: (-len(set(one.labels)), one.image))
    made = []
    for one in seen[:PICTURES]:
        target = folder / model / f"{Path(one.image).stem}.jpg"
        annotate(by_name[one.image], one, target)
        made.append(f"{model}/{target.name}")
    return made
