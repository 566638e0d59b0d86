"""What a run folder holds about one model: the evidence of its stages, read back.

Read apart from the driver, which needs Ray: the page can be made on any machine.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from qualification.aiperf import AIPerfEvidence
from qualification.evidence import Seen
from qualification.gates import Gate

SWEEP = re.compile(r"aiperf-([cr])([0-9.]+)\.json")
KINDS = {"c": "concurrency", "r": "requests/s"}


@dataclass(frozen=True)
class LoadPoint:
    """One AIPerf run of a load sweep. kind: `concurrency`, or `requests/s` as they were sent."""

    kind: str
    load: float
    evidence: AIPerfEvidence
    gates: list[Gate]


@dataclass(frozen=True)
class Saved:
    """None where the stage was not run. sweep: by kind and rising load."""

    native: list[Seen] | None
    reference: list[Seen] | None
    aiperf: AIPerfEvidence | None
    sweep: list[LoadPoint]


def read(folder: Path) -> Saved:
    """The evidence in a model's folder of a run, which may be absent."""
    native, reference, aiperf = (
        _stage(folder / f"{stage}.json") for stage in ("native", "reference", "aiperf")
    )
    return Saved(
        native=_seen(native),
        reference=_seen(reference),
        aiperf=AIPerfEvidence.model_validate(aiperf["data"]) if aiperf else None,
        sweep=sorted(_sweep(folder), key=lambda point: (point.kind, point.load)),
    )


def _stage(path: Path) -> dict[str, Any] | None:
    return orjson.loads(path.read_bytes()) if path.is_file() else None


def _seen(stage: dict[str, Any] | None) -> list[Seen] | None:
    return [Seen.from_json(value) for value in stage["data"]["seen"]] if stage else None


def _sweep(folder: Path) -> Sequence[LoadPoint]:
    points = []
    for path in folder.glob("aiperf-*.json"):
        name = SWEEP.fullmatch(path.name)
        if name is not None:
            stage = orjson.loads(path.read_bytes())
            points.append(
                LoadPoint(
                    kind=KINDS[name[1]],
                    load=float(name[2]),
                    evidence=AIPerfEvidence.model_validate(stage["data"]),
                    gates=[Gate.model_validate(gate) for gate in stage["gates"]],
                )
            )
    return points
