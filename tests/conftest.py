"""Fixtures of the whole suite: a cache of its own, the real test data, one Ray cluster and one
live application for every test that needs a server.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments import settings

settings.apply()  # before anything imports Ray, which reads its settings once

PROJECT = Path(__file__).resolve().parents[1]
COCO_MODELS = ("yolox-nano", "yolov8n-coco")
BOUND = {"/v1/page-elements": "yolox-nano"}


@pytest.fixture(scope="session", autouse=True)
def _home() -> Iterator[Path]:
    """A DETSERVE_HOME for the session, so that no test sees or changes the user's cache.

    DETSERVE_TEST_HOME keeps one over sessions: what was fetched and built is then used again.
    """
    kept = os.environ.get("DETSERVE_TEST_HOME")
    with tempfile.TemporaryDirectory(prefix="detserve-test-") as fresh:
        os.environ["DETSERVE_HOME"] = kept or fresh
        yield Path(kept or fresh)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with real images and checkpoints; the test is skipped without it."""
    from models import home

    folder = home.data()
    if not (folder / "coco128" / "instances.json").is_file():
        pytest.skip(f"no test data in {folder}; DETSERVE_DATA names its folder")
    return folder


@dataclass
class Application:
    """The live application: `serve run` of a real config, in the session's Ray cluster."""

    url: str
    port: int
    folder: Path
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    builders: dict[str, str] = field(default_factory=dict)

    def deploy(
        self, models: dict[str, dict[str, Any]], builder: str = "deployments.app:build"
    ) -> dict[str, dict[str, Any]]:
        """Add (or change) models by name and arguments, as a user does: by editing the file and
        running `serve run` again. Returns `/v1/models` by name once all have settled."""
        self.models |= models
        self.builders |= dict.fromkeys(models, builder)
        return self._apply()

    def remove(self, name: str) -> None:
        """Take a model out of the file again."""
        del self.models[name]
        self._apply()

    def _apply(self) -> dict[str, dict[str, Any]]:
        from qualification.launch import wait_until_settled

        config = self.folder / "serve_config.yaml"
        config.write_text(yaml.safe_dump(self._config()))
        done = subprocess.run(
            [Path(sys.executable).with_name("serve"), "run", "--non-blocking", config],
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return wait_until_settled(self.url, list(self.models), _quiet)

    def _config(self) -> dict[str, Any]:
        default = yaml.safe_load((PROJECT / "serve_config.yaml").read_text())
        ingress = default["applications"][0]
        ingress["args"] = {"paths": BOUND}
        return {
            **default,
            "http_options": {**default["http_options"], "port": self.port},
            "applications": [
                ingress,
                *(
                    {
                        "name": name,
                        "route_prefix": None,
                        "import_path": self.builders[name],
                        "args": args,
                    }
                    for name, args in self.models.items()
                ),
            ],
        }


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """One Ray cluster for the session; yields its address."""
    import ray

    # declared CPUs are for placement only: faulty twins of a model wait beside it, idle
    ray.init(num_cpus=16, include_dashboard=False, namespace="detserve", logging_level="ERROR")
    address = ray.get_runtime_context().gcs_address
    os.environ["RAY_ADDRESS"] = address
    yield address
    del os.environ["RAY_ADDRESS"]
    ray.shutdown()


@pytest.fixture(scope="session")
def application(
    cluster: str, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    """yolox-nano and yolov8n-coco, served."""
    from ray import serve

    (port,) = settings.free_ports(1)
    served = Application(f"http://127.0.0.1:{port}", port, tmp_path_factory.mktemp("serve"))
    entries = served.deploy({name: {"checkpoint": name} for name in COCO_MODELS})
    assert all(entries[name]["ready"] for name in COCO_MODELS), entries
    yield served
    serve.shutdown()


@pytest.fixture(scope="session")
def http(application: Application) -> Iterator[Any]:
    """An httpx client of the application."""
    import httpx

    with httpx.Client(base_url=application.url, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def native(application: Application) -> Iterator[Any]:
    """Served models without HTTP (tests/native.py)."""
    from tests.native import Native

    models = Native()
    yield models
    models.close()


@pytest.fixture(scope="session")
def run_script() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run one of scripts/ as a user does; output is captured as text."""

    def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, PROJECT / "scripts" / name, *arguments],
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def _quiet(message: str) -> None:
    """Progress of starting is of no interest in tests."""
