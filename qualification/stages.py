"""The stages of a campaign: their order, what each needs, and a stage's saved result.

Apart from what runs them, so that a saved result can be read, resumed and judged again without
Ray.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel

from models.errors import QualificationError
from qualification.gates import Gate

STAGES = (
    "bundle",
    "native",
    "reference",
    "owning-case",
    "dataset",
    "identity",
    "probes",
    "aiperf",
    "bundle-after",
)

# Looked at in every run: what is served may have changed since a result was saved.
ALWAYS = ("bundle", "bundle-after")

# The stages whose results one is judged by.
NEEDS: dict[str, tuple[str, ...]] = {
    "owning-case": ("native", "reference"),
    "dataset": ("native", "reference"),
    "identity": ("native",),
    "probes": ("bundle", "native"),
    "aiperf": ("native",),
    "bundle-after": ("bundle",),
}


def needs(name: str) -> tuple[str, ...]:
    """Of a stage, or of a point of a sweep, which is no stage of its own: it needs what AIPerf's
    does."""
    return NEEDS.get(name if name in STAGES else "aiperf", ())


class StageResult(BaseModel):
    """What a stage saw and how its gates judged it.

    key: digest of what the stage depends on; a saved result is taken up again only under the
    same key.
    """

    stage: str
    key: str
    gates: list[Gate]
    data: dict[str, Any]
    seconds: float
    kept: bool = False  # taken up from an interrupted run


def choose(names: Sequence[str]) -> tuple[str, ...]:
    """The stages of these names with those they need, in order.

    `aiperf` brings all: nothing is timed on a bundle that was not validated, and what was timed is
    looked at again.

    Raises:
        QualificationError: there is no such stage.
    """
    if unknown := [name for name in names if name not in STAGES]:
        raise QualificationError(
            f"no such stage: {', '.join(unknown)}; there are {', '.join(STAGES)}"
        )
    if "aiperf" in names:
        return STAGES
    wanted = {"bundle", *names}.union(*map(needs, names))
    return tuple(stage for stage in STAGES if stage in wanted)


def digest(*parts: object) -> str:
    """A key over plain values: sha256 of how they are written."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def path(folder: Path, model: str, stage: str) -> Path:
    return folder / model / f"{stage}.json"


def save(file: Path, result: StageResult) -> None:
    """Written beside and renamed, so that a file that exists is whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_bytes(orjson.dumps(result.model_dump(mode="json")))
    os.replace(scratch, file)


def saved(file: Path) -> StageResult | None:
    return StageResult.model_validate(json.loads(file.read_bytes())) if file.is_file() else None
