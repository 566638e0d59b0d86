#!/usr/bin/env python3
"""Compare two finished runs of scripts/qualify.py: what changed from A to B.

    python scripts/compare.py results/20261201-101500 results/20261202-090000

Lists changes of status, gates, bundle, settings and environment, and how mAP and latencies moved
with their 95 % intervals. Exit code: 0 without a regression, 1 with one (a lower status, a gate
that no longer passes, a mAP that fell by more than chance and 0.01, a median client latency that
rose by more than chance and 15 % in both measurements of it), 2 if a folder cannot be read.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from models.errors import DetserveError, QualificationError
from qualification import comparing, saved_run
from qualification.comparing import Change, Comparison, Shift
from qualification.saved_run import SavedRun


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", type=Path, metavar="A", help="folder of the earlier run")
    parser.add_argument("b", type=Path, metavar="B", help="folder of the later run")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")
    args = parser.parse_args()
    try:
        a, b = _read(args.a), _read(args.b)
        with saved_run.reading(f"{args.a} or {args.b}"):
            found = comparing.compare(a, b)
    except DetserveError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    print(found.model_dump_json(indent=2) if args.json else "\n".join(_lines(found)))
    return 1 if found.regressed else 0


def _read(folder: Path) -> SavedRun:
    run = saved_run.read(folder)
    if run.results is None:
        raise QualificationError(f"{folder} holds a run that did not finish")
    return run


def _lines(found: Comparison) -> Iterator[str]:
    yield from _changes("environment", found.environment)
    for model in found.models:
        same = not model.changes and not any(shift.significant for shift in model.shifts)
        verdict = "REGRESSED" if model.regressed else "as before" if same else "no regression"
        yield f"{model.model}: {verdict}"
        yield from _changes("", model.changes)
        yield from map(_shift, model.shifts)


def _changes(heading: str, changes: Iterable[Change]) -> Iterator[str]:
    for index, change in enumerate(changes):
        if heading and index == 0:
            yield f"{heading}:"
        mark = "!" if change.regression else " "
        yield f"{mark} {change.what}: {change.a} -> {change.b}"


def _shift(shift: Shift) -> str:
    mark = "!" if shift.regression else " "
    if shift.what in ("map", "map50"):
        change = f"{shift.change.estimate:+.4f} [{shift.change.low:+.4f}, {shift.change.high:+.4f}]"
        figures = f"{shift.a:.4f} -> {shift.b:.4f}"
    else:
        change = f"x{shift.change.estimate:.3f} [{shift.change.low:.3f}, {shift.change.high:.3f}]"
        figures = f"{shift.a:.2f} -> {shift.b:.2f}"
    chance = "" if shift.significant else ", within chance"
    return f"{mark} {shift.what:<20} {figures}  {change}{chance}"


if __name__ == "__main__":
    sys.exit(main())
