"""Request records: one content-free JSON line for each request, written by the ingress.

The operator's access log, and the second of the two independent accounts that qualification
joins with AIPerf's by request id. Files lie under DETSERVE_HOME/requests, one for each ingress
replica, and rotate.
"""

import logging
import time
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

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


def read(since: float) -> Iterator[dict[str, Any]]:
    """Every record of the files that were written to after `since` (seconds, `time.time()`)."""
    for path in sorted(folder().glob("*.jsonl*")):
        if path.stat().st_mtime >= since:
            for line in path.read_bytes().splitlines():
                yield orjson.loads(line)
