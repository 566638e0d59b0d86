"""A run's folder: which one, and the claim on it, so that two campaigns never write to the same.

The claim is a lock that ends with the process that holds it, however that ends.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from models.errors import QualificationError

LOCK = ".lock"
FINISHED = "results.json"


@contextmanager
def claim(results: Path, out: Path | None) -> Iterator[Path]:
    """Hold a folder: `out`, or under `results` the newest that is unfinished and not held, or a
    new one.

    Raises:
        QualificationError: `out` holds a finished run, or another campaign holds it.
    """
    if out is not None:
        with _hold(out.absolute()) as held:
            if not held:
                raise QualificationError(f"another campaign is writing to {out}")
            if (out / FINISHED).exists():
                raise QualificationError(f"{out} holds a finished run; choose another folder")
            yield out.absolute()
        return
    started = time.strftime("%Y%m%d-%H%M%S")
    unfinished = sorted((run for run in results.glob("20*") if _open(run)), reverse=True)
    new = (results / f"{started}{suffix}" for suffix in ("", *(f"-{n}" for n in range(2, 100))))
    for folder in (*unfinished, *new):
        with _hold(folder) as held:
            # another campaign may have finished it before it was ours
            if held and _open(folder):
                yield folder.absolute()
                return
    raise QualificationError(f"no free folder under {results}")


def _open(folder: Path) -> bool:
    return not (folder / FINISHED).exists()


@contextmanager
def _hold(folder: Path) -> Iterator[bool]:
    """Whether the folder, made if need be, could be locked at once."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
