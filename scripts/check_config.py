#!/usr/bin/env python3
"""Say what a serve_config.yaml would do, without starting anything.

    python scripts/check_config.py serve_config.yaml
    python scripts/check_config.py serve_config.yaml --url http://127.0.0.1:8000

Each model's bundle and engine on this machine, and whether all fit; with --url, what
`serve deploy` of the file would change in the server that runs there. Exit code: 0 if every model
of the file can be served, 1 if not.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import httpx

from deployments import fit
from deployments.bundles import given, wanted
from deployments.config import ModelArgs
from deployments.detector import check_status, configuration
from deployments.plan import Plan, Unit, read
from models import gpu
from models.bundle import Bundle
from models.errors import DetserveError
from qualification.client import Client


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--url", help="a running server to compare the file with")
    args = parser.parse_args()
    try:
        plan = read(args.file)
        changes = _changes(plan, args.url) if args.url else {}
    except DetserveError as error:
        print(f"check_config: {error}", file=sys.stderr)
        return 1
    except httpx.HTTPError as error:
        print(f"check_config: nothing answers at {args.url}: {error}", file=sys.stderr)
        return 1
    print(f"http://{plan.host}:{plan.port}" + _network(plan.host))
    failed = dict(plan.refused)
    for name, model in plan.models.items():
        try:
            print(f"{name}: {_sentence(model)}")
        except DetserveError as error:
            failed[name] = str(error)
    for name, reason in failed.items():
        print(f"{name}: REFUSED, {reason}")
    fits = _fits(plan)
    for name, change in changes.items():
        print(f"serve deploy {change} {name}")
    return 0 if fits and not failed else 1


def _network(host: str) -> str:
    return "" if host in ("127.0.0.1", "localhost") else ", open to the network"


def _sentence(args: ModelArgs) -> str:
    """What one model becomes.

    Raises:
        DetserveError: it cannot be served.
    """
    scale = args.autoscaling
    replicas = f"{scale.min_replicas} to {scale.max_replicas}" if scale else args.initial_replicas
    share = f"{args.resources.cpus:g} CPU"
    if args.resources.gpus:
        share += f" and {args.resources.gpus:g} GPU"
    ending = f"replicas: {replicas}, each {share}"
    if args.bundle is not None:
        folder, made = given(args.bundle), ""
    else:
        want = wanted(args)
        folder = want.folder
        made = f"{want.checkpoint.id} in {want.precision} by {want.engine}, {want.reason}; "
        if not folder.exists():
            return f"{made}its bundle is built when it starts; {ending}"
    manifest = Bundle.open(folder).manifest
    check_status(manifest, args.require)
    fit.check(manifest, args.resources.gpus)
    made = made or f"{manifest.checkpoint} in {manifest.precision} by {manifest.engine}; "
    return f"{made}bundle {manifest.digest[:12]} is built; {ending}"


def _fits(plan: Plan) -> bool:
    """Whether Ray can place what starts at once; prints the sums."""
    fits = True
    there_is: dict[Unit, int] = {"cpus": os.cpu_count() or 1, "gpus": gpu.count()}
    for unit, there in there_is.items():
        first, most = plan.initial(unit), plan.largest(unit)
        if most:
            verdict = "" if first <= there else ": TOO FEW, some would wait for ever"
            print(f"{unit}: {first:g} at first, {most:g} at most, {there} here{verdict}")
            fits = fits and first <= there
    return fits


def _changes(plan: Plan, url: str) -> dict[str, str]:
    """What deploying does to each model, as a verb.

    Raises:
        httpx.HTTPError: nothing answers there.
    """
    _, document = Client(url).get("/v1/models")
    listed: Any = document["data"]
    served = {entry["id"]: entry.get("config") for entry in listed}
    changes = {}
    for name in sorted({*served, *plan.models, *plan.refused}):
        if name in plan.refused:
            continue
        if name not in plan.models:
            changes[name] = "removes"
        elif name not in served:
            changes[name] = "adds"
        elif served[name] is None:
            changes[name] = "starts anew, unready there,"
        elif differing := _differing(served[name], configuration(plan.models[name])):
            changes[name] = f"replaces, for another {differing},"
        else:
            changes[name] = "leaves"
    return changes


def _differing(there: dict[str, Any], here: dict[str, Any]) -> str:
    return ", ".join(sorted(name for name in here if here[name] != there.get(name)))


if __name__ == "__main__":
    sys.exit(main())
