#!/usr/bin/env python3
"""Make a run's report.html again, from its folder alone and without running a model.

    python scripts/report.py results/20261201-104500

The pictures are those that the campaign kept; a run without them gets them drawn if its dataset is
on this machine. Prints the page's path. Exit code: 0 if it is written, 2 if it could not be (RUN
is not the folder of a finished run, or holds what is not its evidence).
"""

import argparse
import sys
from pathlib import Path

from pydantic import ValidationError

from models.errors import DetserveError
from qualification import html
from qualification.results import Results


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, results/<run>")
    folder: Path = parser.parse_args().run
    try:
        results = Results.model_validate_json((folder / "results.json").read_bytes())
    except (OSError, ValidationError) as error:
        reason = "has no results.json" if isinstance(error, OSError) else _first(error)
        print(f"report: {folder}: {reason}", file=sys.stderr)
        return 2
    try:
        print(html.write(folder, results))
    except (DetserveError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    return 0


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(map(str, problem["loc"]))
    return f"results.json is not of this version: {where}: {problem['msg']}"


if __name__ == "__main__":
    sys.exit(main())
