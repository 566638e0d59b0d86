"""Starts the application a campaign judges, by the very command its users type."""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import ray
from ray import serve

from deployments.bundles import open_or_build
from deployments.plan import Plan, read
from deployments.registry import STARTING, UPDATING, WAITING
from models.errors import DetserveError, QualificationError
from qualification.client import Client

READY_TIMEOUT_S = 900
POLL_S = 1.0
LISTED_S = 20.0  # within which a model that is served is listed once anything answers
NAMESPACE = "detserve"

Log = Callable[[str], None]


@contextmanager
def application(config: Path, log: Log) -> Iterator[str]:
    """`serve run CONFIG` in a Ray cluster of its own; yields the application's URL and takes
    everything down again.

    Raises:
        ConfigError: the file cannot be served.
        QualificationError: the port is taken, or `serve run` fails.
    """
    plan = read(config)
    # a Serve that was killed leaves its HAProxy on the port, and that would answer for ours
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", plan.port)) == 0:
            raise QualificationError(
                f"something answers on port {plan.port} already; stop it, or qualify the running "
                f"application with --address"
            )
    _prepare(plan, config.name, log)
    log(f"starting Ray and the application of {config.name}")
    _connect(num_cpus=os.cpu_count(), include_dashboard=False)
    try:
        done = subprocess.run(
            [Path(sys.executable).with_name("serve"), "run", "--non-blocking", config],
            env={**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise QualificationError(f"`serve run {config.name}` failed:\n{done.stderr[-2000:]}")
        yield f"http://{'127.0.0.1' if plan.host == '0.0.0.0' else plan.host}:{plan.port}"
    finally:
        log("stopping the application")
        serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()


@contextmanager
def running(address: str, url: str) -> Iterator[str]:
    """A running application: `address` of its Ray cluster, `url` of its HTTP front.

    Raises:
        QualificationError: there is no such cluster.
    """
    try:
        _connect(address=address)
    except ConnectionError as error:
        raise QualificationError(f"no Ray cluster at {address!r}: is the server up?") from error
    try:
        yield url
    finally:
        ray.shutdown()


def _prepare(plan: Plan, file: str, log: Log) -> None:
    """Build what is missing now, with progress where the user looks; the replicas then find it.

    A model that cannot be built is left to its replica, which fails alone and says why.

    Raises:
        QualificationError: the models ask for more CPUs than there are; some would wait for ever.
    """
    for name, args in plan.models.items():
        try:
            open_or_build(args, log)
        except DetserveError as error:
            log(f"{name}: {error}")
    cpus, cores = plan.initial("cpus"), os.cpu_count() or 1
    if cpus > cores:
        raise QualificationError(
            f"the models of {file} ask for {cpus:g} CPUs and this machine has {cores}: "
            f"lower `resources.cpus` or the replicas"
        )


def _connect(**options: Any) -> None:
    ray.init(namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR, **options)


def wait_until_settled(url: str, models: list[str] | None, log: Log) -> dict[str, dict[str, Any]]:
    """`/v1/models` by name, once every model (of `models`, or all) is ready or has failed.

    Raises:
        QualificationError: that takes longer than 15 minutes.
    """
    client, said = Client(url), ""
    deadline = time.monotonic() + READY_TIMEOUT_S
    unlisted_until: float | None = None
    while time.monotonic() < deadline:
        entries = _entries(client)
        if entries is not None:
            unlisted_until = unlisted_until or time.monotonic() + LISTED_S
            asked = entries if models is None else {m: entries[m] for m in models if m in entries}
            waiting = [
                f"{name} ({entry['reason']})"
                for name, entry in asked.items()
                if entry.get("reason", "").startswith((STARTING, WAITING, UPDATING))
            ]
            if time.monotonic() < unlisted_until:
                waiting += [f"{name} (not listed)" for name in models or () if name not in entries]
            if entries and not waiting:
                return entries
            if (saying := ", ".join(waiting)) != said:
                log(f"waiting for {saying}")
                said = saying
        time.sleep(POLL_S)
    raise QualificationError(f"the application was not ready after {READY_TIMEOUT_S} s: {said}")


def _entries(client: Client) -> dict[str, dict[str, Any]] | None:
    """None while nothing answers yet."""
    try:
        status, document = client.get("/v1/models")
    except (httpx.HTTPError, ValueError):
        return None
    listed: Any = document.get("data")
    return {entry["id"]: entry for entry in listed} if status == 200 else None
