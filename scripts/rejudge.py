#!/usr/bin/env python3
"""Judge a saved run again, from its folder alone: no model, no server, no dataset.

    python scripts/rejudge.py results/20261201-101500
    python scripts/rejudge.py results/20261201-101500 --model yolox-nano --json

Prints each gate's verdict then and now, and the figures of results.json that the evidence does not
give. Exit code: 0 if all are the same, 1 if a verdict, a bound or a figure differs or a pass has no
evidence in the folder, 2 if the folder cannot be read. A run that did not finish is judged as far
as it got.
"""

import argparse
import sys
from pathlib import Path

import orjson

from models.errors import DetserveError
from qualification import rejudging, saved_run
from qualification.rejudging import ModelVerdict

WORDS = {True: "passed", False: "FAILED", None: "absent"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--model", action="append", metavar="NAME", help="only this one")
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    args = parser.parse_args()
    try:
        found = rejudging.rejudge(saved_run.read(args.run), args.model or ())
    except DetserveError as error:
        print(f"rejudge: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(
            orjson.dumps([each.model_dump() for each in found], option=orjson.OPT_INDENT_2).decode()
        )
    else:
        for each in found:
            print("\n".join(_lines(each)))
    return 0 if all(each.agrees for each in found) else 1


def _lines(found: ModelVerdict) -> list[str]:
    then = found.then or "not finished"
    lines = [f"{found.model}: {then} then, {found.now} now"]
    for gate in found.gates:
        mark = " " if gate.agrees else "!"
        detail = f"  ({gate.detail})" if gate.detail else ""
        lines.append(
            f"{mark} {gate.gate:<24} {WORDS[gate.then]:<7} then, {WORDS[gate.now]} now{detail}"
        )
    lines += [f"! {figure}" for figure in found.figures]
    return lines


if __name__ == "__main__":
    sys.exit(main())
