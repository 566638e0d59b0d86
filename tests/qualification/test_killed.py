"""kill -9 of what a campaign depends on: each row comes to an end that says what happened, the
others go on, and nothing is left running."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from models.errors import QualificationError
from qualification import work
from tests.conftest import PROJECT

pytestmark = pytest.mark.slow

# Judged in this order, a model for each victim.
VICTIMS = ("1-aiperf", "2-replica", "3-driver")


@pytest.fixture(scope="module")
def rows(application, cluster, few, tmp_path_factory) -> Iterator[dict[str, dict[str, Any]]]:
    """The rows of one campaign, in which something is killed at each model."""
    models: dict[str, dict[str, Any]] = {name: {"checkpoint": few} for name in VICTIMS}
    models["2-replica"] = {"checkpoint": "yolox-nano"}  # time enough to be killed in
    application.deploy(models)
    out = tmp_path_factory.mktemp("killed")
    kill: dict[str, Callable[[], None]] = {
        "1-aiperf: aiperf": lambda: _kill(_aiperf(out / "1-aiperf")),
        "2-replica: native": lambda: _kill_actor("SERVE_REPLICA::2-replica#", "serve"),
        "3-driver: aiperf": lambda: (
            _aiperf(out / "3-driver"),
            _kill_actor("qualification-", "detserve"),
        ),
    }
    command = [
        *(sys.executable, PROJECT / "scripts" / "qualify.py", "--address", cluster),
        *("--url", application.url, "--out", out),
        *(word for name in VICTIMS for word in ("--model", name)),
    ]
    campaign = subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True)
    for line in campaign.stderr:
        print(line, end="")
        action = kill.pop(line.removeprefix("qualify: ").removesuffix(" …\n"), None)
        if action is not None:
            action()
    assert campaign.wait(60) == 1
    assert not kill
    yield {row["model"]: row for row in json.loads((out / "results.json").read_text())["rows"]}
    assert not list(_inside(out))  # no AIPerf is left running
    for name in VICTIMS:
        del application.models[name]
    application.deploy({})


def test_a_killed_aiperf_fails_its_gates(rows) -> None:
    row = rows["1-aiperf"]
    gates = {gate["name"]: gate for gate in row["gates"]}
    assert (row["status"], row["passed"]) == ("family-validated", False)
    assert "exit code -9" in gates["aiperf-errors"]["detail"]
    assert not gates["aiperf-responses"]["passed"]
    assert not gates["aiperf-joins"]["passed"]
    assert row["not_run"] == {"bundle-after": "an earlier gate failed"}


def test_a_killed_replica_is_named_or_replaced_in_time(rows) -> None:
    row = rows["2-replica"]
    if not row["passed"]:  # the image in its hands was lost
        assert row["status"] == "planned"
        assert "a replica of 2-replica was lost" in row["reason"]
    else:
        assert row["status"] == "aiperf-qualified"


def test_a_killed_driver_is_replaced_and_goes_on_from_what_is_saved(rows) -> None:
    row = rows["3-driver"]
    assert (row["status"], row["passed"]) == ("aiperf-qualified", True)


def test_a_killed_worker_is_named(cluster) -> None:
    @work.task
    def dies() -> None:
        _kill(os.getpid())

    with pytest.raises(QualificationError, match=r"the process of the test was lost"):
        asyncio.run(work.done("the process of the test", dies.remote()))


def _kill_actor(prefix: str, namespace: str) -> None:
    (name,) = (
        actor["name"]
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if actor["namespace"] == namespace and actor["name"].startswith(prefix)
    )
    actor = ray.get_actor(name, namespace=namespace)
    _kill(ray.get(actor.__ray_call__.remote(lambda self: os.getpid())))


def _aiperf(folder: Path) -> int:
    """The process that runs AIPerf in that folder, as soon as there is one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        running = set(_inside(folder))
        for pid in running:
            if _parent(pid) not in running:
                return pid
    raise AssertionError(f"no AIPerf in {folder}")


def _inside(folder: Path) -> Iterator[int]:
    """Processes whose working directory is in `folder`."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "cwd").readlink().is_relative_to(folder)
        except OSError:  # it has ended, or is another user's
            continue
        if inside:
            yield int(process.name)


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
