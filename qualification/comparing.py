"""Two runs side by side: what changed, and whether it is more than chance.

Two differences are regressions. A mAP that fell: both runs saw the same images, which are drawn
together (paired bootstrap), and the whole 95 % interval must lie below zero and the fall itself
exceed `MAP_DROP`. A client latency that rose: a run measures it twice at different times, in the
stage `identity` and under AIPerf, and in both the interval of the median ratio, taken image by
image, must lie wholly above 1 + `SLOWER`. One alone is mostly a machine that had something else to
do: on two cores, AIPerf's own processes double a latency in some runs of one unchanged model and
not in others (docs/results.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from qualification import documents, performance, statistics
from qualification.aiperf import AIPerfEvidence
from qualification.average_precision import matches
from qualification.results import ModelRow
from qualification.saved_run import SavedRun
from qualification.statistics import Interval
from qualification.target import Target

MAP_DROP = 0.01
SLOWER = 0.15

# of a row: what was served and what it was judged on
SERVED = {"bundle_digest", "engine", "precision", "settings", "dataset"}
ALONE, UNDER_AIPERF = "client, identity", "client"


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Change(_Document):
    """What was `a` in the one run and is `b` in the other."""

    what: str
    a: Any
    b: Any
    regression: bool = False


class Shift(_Document):
    """A figure of both runs. change: b less a for mAP; for latencies b over a,
    image by image, of which the median."""

    what: str
    a: float
    b: float
    change: Interval
    significant: bool
    regression: bool


class ModelComparison(_Document):
    model: str
    changes: list[Change]
    shifts: list[Shift]

    @property
    def regressed(self) -> bool:
        changed = any(each.regression for each in self.changes)
        return changed or any(each.regression for each in self.shifts)


class Comparison(_Document):
    """environment: of the runs as a whole."""

    environment: list[Change]
    models: list[ModelComparison]

    @property
    def regressed(self) -> bool:
        return any(model.regressed for model in self.models)


def compare(a: SavedRun, b: SavedRun) -> Comparison:
    """Both finished.

    Models of one run alone are changes; one that is missing in `b` is a regression.
    """
    assert a.results is not None
    assert b.results is not None
    before = {row.model: row for row in a.results.rows}
    after = {row.model: row for row in b.results.rows}
    environment = _differences(
        a.results.environment.model_dump(), b.results.environment.model_dump()
    )
    models = []
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            gone = name in before
            change = Change(what="qualified", a=gone, b=not gone, regression=gone)
            models.append(ModelComparison(model=name, changes=[change], shifts=[]))
            continue
        shifts = []
        if name in a.targets and name in b.targets:
            shifts = [*_map_shifts(a.targets[name], b.targets[name])]
            shifts += _latency_shifts(a.targets[name], b.targets[name])
        models.append(
            ModelComparison(
                model=name, changes=[*_changes(before[name], after[name])], shifts=shifts
            )
        )
    return Comparison(environment=environment, models=models)


def _changes(a: ModelRow, b: ModelRow) -> Iterator[Change]:
    if a.status is not b.status:
        lower = not b.status.reaches(a.status)
        yield Change(what="status", a=a.status.value, b=b.status.value, regression=lower)
    yield from _differences(*(row.model_dump(mode="json", include=SERVED) for row in (a, b)))
    then, now = ({gate.name: gate.passed for gate in row.gates} for row in (a, b))
    for name in dict.fromkeys([*then, *now]):
        if then.get(name) != now.get(name):
            fell = then.get(name) is True
            yield Change(what=f"gate {name}", a=then.get(name), b=now.get(name), regression=fell)


def _map_shifts(a: Target, b: Target) -> Iterator[Shift]:
    """Of the native side; nothing where the two saw other images or no mAP was taken."""
    if a.dataset.digest != b.dataset.digest or not all("dataset" in t.results for t in (a, b)):
        return
    found = [matches(t.dataset, t.seen("native"), t.labels) for t in (a, b)]
    differences = statistics.between(found[1], found[0])
    for name in ("map", "map50"):
        change: Interval = getattr(differences, name)
        fell = change.high < 0
        yield Shift(
            what=name,
            a=getattr(found[0], name),
            b=getattr(found[1], name),
            change=change,
            significant=fell or change.low > 0,
            regression=fell and change.estimate < -MAP_DROP,
        )


def _latency_shifts(a: Target, b: Target) -> list[Shift]:
    """Medians in ms over the images that both runs measured: in the stage `identity`, and under
    AIPerf at concurrency 1 with its parts. Nothing where the two saw other images."""
    if a.dataset.digest != b.dataset.digest:
        return []
    then, now = (_latencies(target) for target in (a, b))
    found = {}
    for name in then:
        old, new = then[name], now.get(name, {})
        # a part that takes no time has no ratio
        shared = [image for image in old if old[image] > 0 and new.get(image, 0) > 0]
        if shared:
            found[name] = _latency_shift(
                name, [old[image] for image in shared], [new[image] for image in shared]
            )
    judged = [found[name] for name in (ALONE, UNDER_AIPERF) if name in found]
    for shift in judged:
        shift.regression = len(judged) == 2 and all(one.change.low > 1 + SLOWER for one in judged)
    return list(found.values())


def _latency_shift(name: str, then: Sequence[float], now: Sequence[float]) -> Shift:
    change = statistics.median_ratio(then, now)
    return Shift(
        what=name,
        a=float(np.median(then)),
        b=float(np.median(now)),
        change=change,
        significant=change.low > 1 or change.high < 1,
        regression=False,
    )


def _latencies(target: Target) -> dict[str, dict[str, float]]:
    """ms by part and image."""
    found: dict[str, dict[str, float]] = {}
    if "identity" in target.results:
        times = target.results["identity"].data["latency_ms"]
        names = [image.name for image in target.dataset.images]
        found[ALONE] = dict(zip(names, times, strict=True))
    if "aiperf" in target.results:
        evidence = AIPerfEvidence.model_validate(target.results["aiperf"].data)
        found |= performance.by_image(evidence)
    return found


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    return [Change(what=what, a=old, b=new) for what, old, new in documents.differences(a, b)]
