#!/usr/bin/env python3
"""Qualify served checkpoints: prove each one against its reference, over HTTP and under AIPerf.

    python scripts/qualify.py                                  # the models of serve_config.yaml
    python scripts/qualify.py --config my.yaml --model yolox-nano
    python scripts/qualify.py --address auto                   # an application that is running

Starts the application unless --address names a running one, judges every gate and writes
results.json, report.html, report.md and annotated images. An unfinished run is taken up again
where it stopped. Exit code: 0 only if every requested model reached the expected status (by
default it passed every gate), 1 if one did not, 2 if the campaign could not run.
"""

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="every served model (the default)")
    which.add_argument("--model", action="append", metavar="NAME", help="a served model")
    parser.add_argument(
        "--expect",
        choices=["implemented", "family-validated", "aiperf-qualified"],
        default="aiperf-qualified",
        help="the status every model must reach for exit code 0 (default: %(default)s)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--config",
        type=Path,
        default=PROJECT / "serve_config.yaml",
        help="start this application and stop it afterwards (default: serve_config.yaml)",
    )
    where.add_argument(
        "--address", help="Ray address of a running application: auto, or host:port of its GCS"
    )
    parser.add_argument(
        "--url",
        help="the application over HTTP (default: as the config says, or http://127.0.0.1:8000)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the run (default: the newest unfinished one under results/, or a new one)",
    )
    parser.add_argument("--json", action="store_true", help="print results.json on stdout")
    args = parser.parse_args()

    # before anything imports Ray, which reads its settings once
    from deployments import settings

    settings.apply(starts_ray=args.address is None)
    from models.errors import DetserveError

    try:
        return _qualify(args)
    except DetserveError as error:
        print(f"qualify: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nqualify: stopped; the same command takes the run up again", file=sys.stderr)
        return 130


def _qualify(args: argparse.Namespace) -> int:
    from models.errors import QualificationError
    from models.status import Status
    from qualification import campaign, launch, report

    if not args.address and not args.config.is_file():
        raise QualificationError(f"no such file: {args.config}")
    folder = _folder(args.out)
    _log(f"run folder {folder}")
    application = (
        launch.running(args.address, args.url or "http://127.0.0.1:8000")
        if args.address
        else launch.application(args.config, _log)
    )
    with application as address:
        url = args.url or address
        entries = launch.wait_until_settled(url, args.model, _log)
        outcome = campaign.run(
            url=url,
            entries=entries,
            models=args.model or sorted(entries),
            folder=folder,
            command=_command(),
            expected=Status(args.expect),
            log=_log,
            progress=_progress,
        )
    if args.json:
        print(outcome.model_dump_json(indent=1))
    else:
        print(f"\n{report.text_table(outcome)}\n\n{folder / 'report.html'}")
    return 0 if outcome.passed else 1


def _folder(out: Path | None) -> Path:
    """The run's folder: as asked, the newest unfinished one, or a new one."""
    from models.errors import QualificationError

    if out is not None and (out / "results.json").exists():
        raise QualificationError(f"{out} holds a finished run; choose another folder")
    if out is None:
        results = PROJECT / "results"
        unfinished = [
            run
            for run in sorted(results.glob("20*"), reverse=True)
            if not (run / "results.json").exists()
        ]
        out = unfinished[0] if unfinished else results / time.strftime("%Y%m%d-%H%M%S")
    return out.absolute()


def _command() -> str:
    """The command line, without what is particular to this machine."""
    words = [
        os.path.relpath(word, PROJECT) if os.path.isabs(word) else word for word in sys.argv[1:]
    ]
    return shlex.join(["python", "scripts/qualify.py", *words])


def _log(message: str) -> None:
    _clear()
    print(f"qualify: {message}", file=sys.stderr, flush=True)


_announced = ("", "")


def _progress(model: str, stage: str, done: int, total: int) -> None:
    """One line that is overwritten; where there is no terminal, one line for each long stage."""
    global _announced
    if sys.stderr.isatty():
        counted = f" {done}/{total}" if total else ""
        print(f"\r\033[Kqualify: {model}: {stage}{counted}", end="", file=sys.stderr, flush=True)
    elif _announced != (model, stage):
        _announced = (model, stage)
        _log(f"{model}: {stage} …")


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
