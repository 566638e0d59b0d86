"""The commands of the README's "Add a model", in processes and a home of their own: `serve run`,
then `serve deploy` of the edited file, then Ctrl-C.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deployments import records
from deployments.settings import free_ports
from qualification.client import data_url
from tests.conftest import PROJECT

pytestmark = pytest.mark.slow

SERVE = Path(sys.executable).with_name("serve")
LIMIT_S = 120


@pytest.fixture
def environment(data: Path, tmp_path: Path) -> dict[str, str]:
    """A user's shell: nothing of Ray set, an empty home; what was built is found."""
    unset = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    home = tmp_path / "home"
    home.mkdir()
    return {**unset, "HOME": str(home), "DETSERVE_DATA": str(data), "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    document = yaml.safe_load((PROJECT / "serve_config.yaml").read_text())
    (document["http_options"]["port"],) = free_ports(1)
    document["applications"][1:] = [_model("first", 0.25)]
    path = tmp_path / "serve_config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def server(config: Path, environment: dict[str, str]) -> Iterator["Server"]:
    started = Server(config, environment)
    yield started
    started.stop()


class Server:
    """`serve run` of a file, and the lines it prints."""

    def __init__(self, config: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [SERVE, "run", config],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, pattern: str) -> str:
        """The first group of the first line that matches."""
        found: list[str] = []

        def matched() -> bool:
            found[:] = [m[1] for line in self.lines if (m := re.search(pattern, line))]
            return bool(found)

        with self._changed:
            assert self._changed.wait_for(matched, LIMIT_S), "".join(self.lines)
        return found[0]

    def stop(self) -> int:
        """Ctrl-C."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(LIMIT_S)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()


def test_a_model_added_by_serve_deploy_leaves_the_others_alone(
    server: Server, config: Path, environment: dict[str, str], data: Path
) -> None:
    document = yaml.safe_load(config.read_text())
    url = f"http://127.0.0.1:{document['http_options']['port']}"
    dashboard = server.wait_for(r"(?:dashboard|Dashboard).*?(http://[\d.]+:\d+|127\.0\.0\.1:\d+)")
    server.wait_for(r"(first): ready")
    began = time.time()
    image = data_url((data / "coco128" / "images" / "000000000154.jpg").read_bytes())

    document["applications"].append(_model("second", 0.5))
    config.write_text(yaml.safe_dump(document))
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        assert _status(http, "first", image) == 200
        deploying = subprocess.Popen(
            [SERVE, "deploy", "-a", f"http://{dashboard.removeprefix('http://')}", config],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        statuses = [_status(http, "first", image)]
        while _status(http, "second", image) != 200:  # pytest's own limit ends it if need be
            statuses.append(_status(http, "first", image))
        output, _ = deploying.communicate(timeout=LIMIT_S)
    assert deploying.returncode == 0, output
    assert set(statuses) == {200}
    served = [
        record for record in records.read(since=began) if record["id"].startswith("keep-first")
    ]
    replicas = {task["replica"] for record in served for task in record["tasks"]}
    assert len(served) >= len(statuses)
    assert len(replicas) == 1  # the first model was not restarted
    server.wait_for(r"(second): ready")

    assert server.stop() == 0, "".join(server.lines)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/v1/health/live", trust_env=False)


def test_a_model_that_cannot_start_says_why_in_the_terminal(
    server: Server, config: Path, environment: dict[str, str]
) -> None:
    dashboard = server.wait_for(r"(?:dashboard|Dashboard).*?(http://[\d.]+:\d+|127\.0\.0\.1:\d+)")
    document = yaml.safe_load(config.read_text())
    server.wait_for(r"(first): ready")  # `serve run` has sent its own configuration by then
    document["applications"].append(_model("third", 0.5) | {"args": {"checkpoint": "absent"}})
    config.write_text(yaml.safe_dump(document))
    address = f"http://{dashboard.removeprefix('http://')}"
    done = subprocess.run([SERVE, "deploy", "-a", address, config], env=environment, check=False)
    assert done.returncode == 0
    assert "absent" in server.wait_for(r"third: (no checkpoint .* in the catalogue)")


def _model(name: str, threshold: float) -> dict[str, Any]:
    return {
        "name": name,
        "route_prefix": None,
        "import_path": "deployments.app:build",
        "args": {
            "checkpoint": "yolox-nano",
            "threshold": threshold,
            "resources": {"cpus": 0.5},
        },
    }


def _status(http: httpx.Client, model: str, image: str) -> int:
    body = {"model": model, "input": [{"type": "image_url", "url": image}]}
    headers = {"x-request-id": f"keep-{model}-{uuid.uuid4()}"}
    return http.post("/v1/infer", content=json.dumps(body), headers=headers).status_code
