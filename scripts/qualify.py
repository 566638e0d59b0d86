#!/usr/bin/env python3
"""Qualify served checkpoints: prove each one against its reference, over HTTP and under AIPerf.

    python scripts/qualify.py                                  # the models of serve_config.yaml
    python scripts/qualify.py --config my.yaml --model yolox-nano
    python scripts/qualify.py --address auto                   # an application that is running
    python scripts/qualify.py --stages owning-case,dataset     # these and what they need
    python scripts/qualify.py --concurrency 1,2,4,8,16 --requests 200 --request-rate 20

Starts the application unless --address names a running one, judges every gate and writes
results.json, report.html, report.md and annotated images. An unfinished run is taken up again where
it stopped, unless another campaign is at it. Exit code: 0 only if every requested model reached the
expected status and failed no gate, a sweep's included; 1 if one did not; 2 if the campaign could
not run.
"""

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        help="the status every model must reach, besides failing no gate, for exit code 0 "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--stages",
        type=_words,
        metavar="NAME,…",
        help="these stages and those they need; the others stand in `not_run`, and no status is "
        "reached that needs them (default: all)",
    )
    parser.add_argument(
        "--concurrency",
        type=_numbers(int),
        default=[],
        metavar="N,…",
        help="also an AIPerf run with each of these numbers of requests at once, every response "
        "verified; one that fails fails the model",
    )
    parser.add_argument(
        "--request-rate",
        type=_numbers(float),
        default=[],
        metavar="R,…",
        help="the same with each of these numbers of requests begun every second",
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=200,
        metavar="N",
        help="measured requests of each of these runs (default: %(default)s)",
    )
    parser.add_argument(
        "--promote",
        action="store_true",
        help="sign off each bundle that passes as aiperf-qualified: /v1/models then shows it as "
        "promoted, under its digest",
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
    from qualification import run_folder

    if not args.address and not args.config.is_file():
        raise QualificationError(f"no such file: {args.config}")
    chosen = _chosen(args)
    with run_folder.claim(PROJECT / "results", args.out) as folder:
        _log(f"run folder {folder}")
        return _campaign(args, chosen, folder)


def _chosen(args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
    """Stages, and the points of a sweep."""
    from models.errors import QualificationError
    from qualification import stages
    from qualification.aiperf import Point

    chosen = stages.STAGES if args.stages is None else stages.choose(args.stages)
    sweep = [Point.at_concurrency(number, args.requests) for number in args.concurrency]
    sweep += [Point.at_rate(rate, args.requests) for rate in args.request_rate]
    if sweep and "aiperf" not in chosen:
        raise QualificationError("a sweep loads what the stage aiperf has passed: choose it too")
    if len({point.name for point in sweep}) < len(sweep):
        raise QualificationError("a point of the sweep is named twice")
    if args.requests < 1:
        raise QualificationError("--requests must be at least 1")
    return chosen, sweep


def _campaign(
    args: argparse.Namespace, chosen: tuple[tuple[str, ...], list[Any]], folder: Path
) -> int:
    from models.status import Status
    from qualification import campaign, launch, report

    application = (
        launch.running(args.address, args.url or "http://127.0.0.1:8000")
        if args.address
        else launch.application(args.config, _log)
    )
    with application as address:
        url = args.url or address
        entries = launch.wait_until_settled(url, args.model, _log)
        stages, sweep = chosen
        outcome = campaign.run(
            url=url,
            entries=entries,
            wanted=campaign.Wanted(
                models=args.model or sorted(entries),
                stages=stages,
                sweep=sweep,
                expected=Status(args.expect),
                promote=args.promote,
            ),
            folder=folder,
            command=_command(),
            log=_log,
            progress=_progress,
        )
    if args.json:
        print(outcome.model_dump_json(indent=1))
    else:
        print(f"\n{report.text_table(outcome)}\n\n{folder / 'report.html'}")
    return 0 if outcome.passed else 1


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(kind: type[Any]) -> Callable[[str], list[Any]]:
    """Comma-separated numbers above zero."""

    def numbers(text: str) -> list[Any]:
        found = [kind(word) for word in _words(text)]
        if not found or not all(number > 0 for number in found):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers above zero")
        return found

    return numbers


def _command() -> str:
    """The command line, without what is particular to this machine."""
    words = []
    for word in sys.argv[1:]:
        path = Path(word)
        if path.is_absolute():
            inside = path.is_relative_to(PROJECT)
            word = str(path.relative_to(PROJECT)) if inside else path.name
        words.append(word)
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
