"""How far a bundle has been proved, and the records of it.

Statuses are never mixed up: each step needs the one before. Both records, the outcome of the
latest campaign and the sign-off, belong to a bundle's digest, so a changed bundle has none.
"""

import os
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from models.home import home


class Status(StrEnum):
    PLANNED = "planned"  # in the catalogue
    IMPLEMENTED = "implemented"  # its bundle is built, verified and answers
    FAMILY_VALIDATED = "family-validated"  # owning case and dataset gates passed
    AIPERF_QUALIFIED = "aiperf-qualified"  # native/HTTP identity and AIPerf passed too

    def reaches(self, other: "Status") -> bool:
        """Whether this is `other` or a later step."""
        steps = list(Status)
        return steps.index(self) >= steps.index(other)


class Promotion(BaseModel):
    """The sign-off of a bundle that passed a whole campaign (`scripts/qualify.py --promote`).

    gates: those that it passed, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bundle_digest: str
    run: str
    date: str
    gates: list[str]


class QualificationRecord(BaseModel):
    """The outcome of the latest campaign on a bundle."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    status: Status
    run: str
    date: str


def read(bundle_digest: str) -> QualificationRecord | None:
    """The record of that bundle, or None when no campaign has judged it."""
    path = _path(bundle_digest)
    return QualificationRecord.model_validate_json(path.read_bytes()) if path.is_file() else None


def write(bundle_digest: str, record: QualificationRecord) -> None:
    _write(_path(bundle_digest), record)


def promotion(bundle_digest: str) -> Promotion | None:
    """The sign-off of that very bundle, or None."""
    path = _path(bundle_digest, ".promoted")
    return Promotion.model_validate_json(path.read_bytes()) if path.is_file() else None


def promote(record: Promotion) -> None:
    _write(_path(record.bundle_digest, ".promoted"), record)


def withdraw(bundle_digest: str) -> None:
    """Take the sign-off back, where there is one."""
    _path(bundle_digest, ".promoted").unlink(missing_ok=True)


def _write(path: Path, record: BaseModel) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(record.model_dump_json(indent=1))
    os.replace(scratch, path)


def _path(bundle_digest: str, kind: str = "") -> Path:
    return home() / "qualification" / f"{bundle_digest}{kind}.json"
