"""/v1/metrics: counted in several processes, summed by any, and true of the live application."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from qualification.client import data_url
from tests.conftest import PROJECT, Application

RECORD: dict[str, Any] = {
    "model": "m",
    "status": 200,
    "handler_ms": 30.0,
    "image_bytes": 5000,
    "tasks": [
        {
            "queue_ms": 2.0,
            "stages_ms": {"decode": 3.0, "engine": 20.0},
            "task_call_wall_ms": 25.0,
            "batch": 2,
        }
    ],
}
# counts a record, leaves an image in progress and ends; kill -9 leaves the same files
REPLICA = """
import json, sys
from pathlib import Path
from deployments.metrics import Metrics
counted = Metrics(Path(sys.argv[1]))
counted.observe(json.loads(sys.argv[2]))
counted.begin("m", 1)
"""

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    """Values by series: the name and the sorted labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_replicas_are_summed_and_what_the_dead_worked_on_is_left_out(tmp_path: Path) -> None:
    # of its own process too: the library keeps one set of files for each
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", REPLICA, tmp_path, json.dumps(RECORD)],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            check=True,
        )
    scraping = (
        "import sys; from pathlib import Path; from deployments.metrics import Metrics; "
        "print(Metrics(Path(sys.argv[1])).scrape([]).decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", scraping, tmp_path],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = samples(done.stdout)
    model = ("model", "m")
    assert found["detserve_requests_total", (model, ("status", "200"))] == 2
    assert found["detserve_request_seconds_sum", (model,)] == pytest.approx(0.06)
    assert found["detserve_batch_images_sum", (model,)] == 4
    assert found["detserve_image_bytes_count", (model,)] == 2
    engine = (model, ("stage", "engine"))
    assert found["detserve_stage_seconds_sum", engine] == pytest.approx(0.04)
    assert ("detserve_images_in_progress", (model,)) not in found


@pytest.mark.slow
def test_the_live_application_counts_what_it_answers(
    application: Application, http: httpx.Client, data: Path
) -> None:
    image = data_url((data / "coco128" / "images" / "000000000154.jpg").read_bytes())
    item = {"type": "image_url", "url": image}

    def ask(model: str, images: int) -> httpx.Response:
        return http.post("/v1/infer", json={"model": model, "input": [item] * images})

    def scrape() -> Samples:
        answer = http.get("/v1/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        return samples(answer.text)

    def rise(name: str, **labels: str) -> float:
        series = (name, tuple(sorted(labels.items())))
        return after[series] - before.get(series, 0)

    before = scrape()
    assert [ask("yolox-nano", number).status_code for number in (1, 1, 2)] == [200] * 3
    assert ask("never-heard-of", 1).status_code == 404
    after = scrape()
    name = {"model": "yolox-nano"}
    assert rise("detserve_requests_total", **name, status="200") == 3
    assert rise("detserve_requests_total", model="", status="404") == 1
    assert rise("detserve_request_seconds_count", **name) == 3
    for stage in ("queue", "decode", "preprocess", "engine", "postprocess"):
        assert rise("detserve_stage_seconds_count", **name, stage=stage) == 4
    assert rise("detserve_batch_images_sum", **name) == 4
    assert after["detserve_images_in_progress", (("model", "yolox-nano"),)] == 0
    assert after["detserve_model_ready", (("model", "yolox-nano"),)] == 1
    assert after["detserve_model_replicas", (("model", "yolox-nano"),)] == 1
    assert not any("never-heard-of" in str(series) for series in after)


@pytest.mark.slow
def test_an_answer_says_where_its_time_went(http: httpx.Client, data: Path) -> None:
    image = data_url((data / "coco128" / "images" / "000000000154.jpg").read_bytes())
    body = {"model": "yolox-nano", "input": [{"type": "image_url", "url": image}]}
    header = http.post("/v1/infer", json=body).headers["server-timing"]
    spent = dict(part.split(";dur=") for part in header.split(", "))
    assert list(spent) == ["queue", "decode", "preprocess", "engine", "postprocess", "total"]
    assert sum(map(float, spent.values())) <= 2 * float(spent["total"])
    assert "server-timing" not in http.get("/v1/models").headers
