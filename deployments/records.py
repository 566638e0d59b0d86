"""Request records: one content-free JSON line for each request, written by the ingress.

The operator's access log, and the second of the two independent accounts that qualification
joins with AIPerf's by request id. Files lie under DETSERVE_HOME/requests, one for each ingress
replica, and rotate.
"""

import contextlib
import logging
import os
import time
from collections.abc import Collection, Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from models.home import home

MAX_BYTES = 32 << 20
BACKUPS = 3
KEEP_S = 7 * 24 * 3600  # files of replicas that ended longer ago are removed


def folder() -> Path:
    return home() / "requests"


class RecordWriter:
    """Appends records to `DETSERVE_HOME/requests/<replica>.jsonl`."""

    def __init__(self, replica: str) -> None:
        folder().mkdir(parents=True, exist_ok=True)
        for old in folder().glob("*.jsonl*"):
            if time.time() - old.stat().st_mtime > KEEP_S:
                old.unlink(missing_ok=True)
        self._logger = logging.getLogger(f"detserve.requests.{replica}")
        self._logger.propagate = False
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(
            RotatingFileHandler(
                folder() / f"{replica}.jsonl", maxBytes=MAX_BYTES, backupCount=BACKUPS
            )
        )

    def write(self, record: dict[str, Any]) -> None:
        self._logger.info(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY).decode())


def by_id(ids: Collection[str], since: float) -> dict[str, list[dict[str, Any]]]:
    """The records of these requests by their id, of the files that `read` takes; an id without a
    record is left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in read(since):
        if record["id"] in ids:
            found.setdefault(record["id"], []).append(record)
    return found


def read(since: float) -> Iterator[dict[str, Any]]:
    """Every record, once, of the files that were written to after `since` (seconds,
    `time.time()`); a file may be renamed by its writer meanwhile."""
    with contextlib.ExitStack() as stack:
        files: dict[int, BinaryIO] = {}
        replicas = {path.name.partition(".jsonl")[0] for path in folder().glob("*.jsonl*")}
        # the one that is written to comes first: what is renamed meanwhile is met again further on
        suffixes = ("", *(f".{number}" for number in range(1, BACKUPS + 1)))
        for name in (f"{replica}.jsonl{end}" for replica in sorted(replicas) for end in suffixes):
            with contextlib.suppress(FileNotFoundError):
                file = stack.enter_context((folder() / name).open("rb"))
                status = os.fstat(file.fileno())
                if status.st_mtime >= since:
                    files.setdefault(status.st_ino, file)
        for opened in files.values():
            for line in opened:
                if line.endswith(b"\n"):  # the last one may still be written
                    yield orjson.loads(line)
