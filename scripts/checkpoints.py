#!/usr/bin/env python3
"""Make docs/checkpoints.md, the coverage matrix, from the catalogue's files.

    python scripts/checkpoints.py            # print it
    python scripts/checkpoints.py --write    # write it
    python scripts/checkpoints.py --check    # is it up to date?

Exit code: 0 if done (--check: if the page is up to date), 1 if not.
"""

import argparse
import difflib
import sys
from pathlib import Path

from models.catalogue import coverage
from models.errors import DetserveError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "checkpoints.md"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="write the page")
    what.add_argument(
        "--check", action="store_true", help="print what differs in the page, if anything does"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="default: docs/checkpoints.md")
    args = parser.parse_args()
    try:
        made = coverage.page()
        if args.write:
            args.page.write_text(made, encoding="utf-8")
        elif args.check:
            return _check(args.page, made)
        else:
            print(made, end="")
    except (DetserveError, OSError) as error:
        print(f"checkpoints: {error}", file=sys.stderr)
        return 1
    return 0


def _check(page: Path, made: str) -> int:
    written = page.read_text(encoding="utf-8")
    if written == made:
        return 0
    lines = difflib.unified_diff(
        written.splitlines(), made.splitlines(), str(page), "as the catalogue has it", "", "", 0
    )
    print("\n".join(lines))
    print(
        f"checkpoints: {page} is not what the catalogue says; run scripts/checkpoints.py --write",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
