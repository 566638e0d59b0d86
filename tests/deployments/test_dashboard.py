"""configs/grafana.json against a real Prometheus that scrapes the live application."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deployments.settings import free_ports
from qualification.client import Client
from tests.conftest import PROJECT, Application

DASHBOARD = json.loads((PROJECT / "configs" / "grafana.json").read_text())
QUERIES = [
    target["expr"].replace("$__rate_interval", "1m").replace("$model", ".+")
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
LIMIT_S = 60

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prometheus(application: Application, tmp_path_factory: Any) -> Iterator[httpx.Client]:
    """Its HTTP API; it scrapes the application every second, as docs/operating.md has it."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus here: apt-get install prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    job = {
        "job_name": "detserve",
        "metrics_path": "/v1/metrics",
        "static_configs": [{"targets": [f"127.0.0.1:{application.port}"]}],
    }
    config = folder / "prometheus.yml"
    config.write_text(
        yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]})
    )
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        yield client
    process.terminate()
    process.wait()


def test_every_query_of_the_dashboard_is_answered(
    prometheus: httpx.Client, application: Application, data: Path
) -> None:
    picture = (data / "coco128" / "images" / "000000000154.jpg").read_bytes()
    client, end = Client(application.url), time.monotonic() + LIMIT_S
    empty = set(QUERIES)
    # a rate needs two scrapes with requests between them
    while any("gpu" not in query for query in empty):
        assert time.monotonic() < end, f"no data for {empty}"
        assert client.infer("yolox-nano", [picture])[0] == 200
        empty = {query for query in empty if not ask(prometheus, query)}
    client.close()


def ask(prometheus: httpx.Client, query: str) -> list[Any]:
    """The series that a query has now; none while Prometheus starts."""
    try:
        answer = prometheus.get("/api/v1/query", params={"query": query})
    except httpx.ConnectError:
        return []
    if answer.status_code == 503:  # it starts
        return []
    document = answer.json()
    assert document["status"] == "success", (query, document)
    found: list[Any] = document["data"]["result"]
    return found
