#!/usr/bin/env python3
"""Build bundles: fetch a checkpoint, export it, set its precision, try it, judge it.

    python scripts/build.py detr-resnet-50 yolov8n
    python scripts/build.py yolov8n --from ~/downloads/yolov8n     # files fetched elsewhere
    python scripts/build.py --all --engine tensorrt --precision fp16

What is built and judged already is left alone, so the command can be stopped and given again.
Judging runs the published implementation (`make reference-env`) on the first images of the
checkpoint's dataset and needs every detection within the family's bounds; --no-verify leaves it
out. Exit code: 0 only if every bundle was built and judged right, 1 if one was not.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from models import building, catalogue
from models.adopt import adopt, discard
from models.bundle import Bundle
from models.engine import ENGINE_NAMES
from models.engines.choice import resolve, resolve_precision
from models.errors import DetserveError
from qualification.verify import verify


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "checkpoints", nargs="*", default=[], metavar="CHECKPOINT", help="catalogue id"
    )
    which.add_argument("--all", action="store_true", help="every checkpoint of the catalogue")
    which.add_argument("--list", action="store_true", help="print the catalogue's ids and stop")
    parser.add_argument("--engine", choices=["auto", *ENGINE_NAMES], default="auto")
    parser.add_argument(
        "--precision",
        choices=["auto", "fp32", "fp16"],
        default="auto",
        help="auto: the checkpoint's on a GPU, fp32 on the CPU",
    )
    parser.add_argument(
        "--from",
        dest="directory",
        type=Path,
        metavar="DIR",
        help="take the published files from here instead of fetching them",
    )
    parser.add_argument("--no-verify", action="store_true", help="do not judge the bundle")
    parser.add_argument("--json", action="store_true", help="print what was built on stdout")
    args = parser.parse_args()
    if args.list:
        print("\n".join(catalogue.known()))
        return 0
    names = catalogue.known() if args.all else args.checkpoints
    if args.directory is not None and len(names) != 1:
        parser.error("--from takes the files of one checkpoint")
    rows = [_built(name, args, place, len(names)) for place, name in enumerate(names, 1)]
    if args.json:
        print(json.dumps(rows, indent=1))
    failed = [row["checkpoint"] for row in rows if row["problem"]]
    verdict = "built, none judged" if args.no_verify else "right"
    right = f"{len(rows) - len(failed)} of {len(rows)} {verdict}"
    _log(right + "".join(f", not {name}" for name in failed))
    return 1 if failed else 0


def _built(name: str, args: argparse.Namespace, place: int, count: int) -> dict[str, Any]:
    """One checkpoint's row: its bundle and what judging found, or the sentence of its failure."""
    _log(f"{name} ({place} of {count})")
    row: dict[str, Any] = {"checkpoint": name, "problem": None}
    try:
        checkpoint, choice = catalogue.load(name), resolve(args.engine, gpus=1)
        _log(f"{name}: engine {choice.engine}, {choice.reason}")
        precision = resolve_precision(args.precision, choice.engine, checkpoint.precision)
        taken: list[str] = []
        if args.directory is not None:
            _log(f"licence: {checkpoint.licence}")
            taken = adopt(checkpoint.source, name, args.directory, log=_log)
        try:
            bundle = building.ensure(checkpoint, choice.engine, precision, log=_log)
        except DetserveError:
            discard(name, taken, log=_log)
            raise
        row |= _described(bundle)
        if not args.no_verify:
            found = verify(checkpoint, bundle, log=_log)
            row |= {"verified": found.model_dump(), "problem": found.problem}
    except DetserveError as error:
        row["problem"] = str(error)
    if row["problem"]:
        _log(f"{name}: {row['problem']}")
    return row


def _described(bundle: Bundle) -> dict[str, Any]:
    manifest = bundle.manifest
    _log(f"{manifest.checkpoint}: {manifest.engine} {manifest.precision} bundle {bundle.folder}")
    return {
        "digest": manifest.digest,
        "engine": manifest.engine,
        "precision": manifest.precision,
        "folder": str(bundle.folder),
        "mb": sum((bundle.folder / name).stat().st_size for name in manifest.files) / 1e6,
    }


def _log(message: str) -> None:
    print(f"build: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nbuild: stopped; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
