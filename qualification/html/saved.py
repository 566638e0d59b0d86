"""What a run folder holds about one model: the evidence of its stages, read back.

Read apart from the driver, which needs Ray: the page can be made on any machine.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from models.errors import QualificationError
from qualification.aiperf import AIPerfEvidence
from qualification.evidence import Seen
from qualification.gates import Gate

SWEEP = re.compile(r"aiperf-([cr])([0-9]+(?:\.[0-9]+)?)\.json")
T = TypeVar("T")
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
    """The evidence in a model's folder of a run, which may be absent.

    Raises:
        QualificationError: a file is not a stage's evidence; the sentence names it.
    """
    return Saved(
        native=_stage(folder / "native.json", _seen),
        reference=_stage(folder / "reference.json", _seen),
        aiperf=_stage(folder / "aiperf.json", _aiperf),
        sweep=sorted(_sweep(folder), key=lambda point: (point.kind, point.load)),
    )


def _stage(path: Path, form: Callable[[dict[str, Any]], T]) -> T | None:
    if not path.is_file():
        return None
    try:
        return form(orjson.loads(path.read_bytes()))
    except (ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise QualificationError(f"{path}: not a stage's evidence: {reason}") from error


def _seen(stage: dict[str, Any]) -> list[Seen]:
    return [Seen.from_json(value) for value in stage["data"]["seen"]]


def _aiperf(stage: dict[str, Any]) -> AIPerfEvidence:
    return AIPerfEvidence.model_validate(stage["data"])


def _gates(stage: dict[str, Any]) -> list[Gate]:
    return [Gate.model_validate(gate) for gate in stage["gates"]]


def _sweep(folder: Path) -> Iterator[LoadPoint]:
    for path in folder.glob("aiperf-*.json"):
        name = SWEEP.fullmatch(path.name)
        evidence, gates = _stage(path, _aiperf), _stage(path, _gates)
        if name and evidence is not None and gates is not None:
            yield LoadPoint(KINDS[name[1]], float(name[2]), evidence, gates)
