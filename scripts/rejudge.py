#!/usr/bin/env python3
"""Judge a saved run again, from its folder alone: no model, no server, no dataset.

    python scripts/rejudge.py results/20261201-101500
    python scripts/rejudge.py results/20261201-101500 --model yolox-nano --json

Prints each gate's verdict then and now. Exit code: 0 if all are the same, 1 if a verdict or a
figure it rests on differs, 2 if the folder cannot be read. A run that did not finish is judged as
far as it got.
"""

import argparse
import sys
from pathlib import Path

import orjson

from models.errors import DetserveError, QualificationError
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
        run = saved_run.read(args.run)
        for name in args.model or ():
            if name not in run.targets:
                raise QualificationError(f"{args.run} has no evidence of a model {name}")
        found = [
            each for each in rejudging.rejudge(run) if not args.model or each.model in args.model
        ]
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
    return lines


if __name__ == "__main__":
    sys.exit(main())
