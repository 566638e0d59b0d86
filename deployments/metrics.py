"""Prometheus metrics, `GET /v1/metrics`: what the records say, added up.

Each ingress replica counts for itself, and any of them may be scraped. So they count in files that
all of a node's replicas share (prometheus_client's multiprocess mode), under
DETSERVE_HOME/metrics/<Ray session>: every scrape has the sums of the whole server, of replicas that
have ended too. Docs and dashboard: docs/operating.md, configs/grafana.json.
"""

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ray
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
    multiprocess,
    values,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from deployments.registry import Model
from models import gpu
from models.home import home

CONTENT_TYPE = CONTENT_TYPE_LATEST
KEEP_S = 7 * 24 * 3600  # folders of servers that ended longer ago are removed

# seconds: from the shortest stage of a small detector on a GPU to the ingress's deadline
SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
BYTES = tuple(1 << power for power in range(12, 27))  # 4 KiB to 64 MiB


def shared_folder() -> Path:
    """Of the running server's ingress replicas on this node; those of old servers are removed."""
    everything = home() / "metrics"
    for session in everything.glob("*"):
        newest = max((path.stat().st_mtime for path in session.iterdir()), default=None)
        if newest is not None and time.time() - newest > KEEP_S:
            shutil.rmtree(session, ignore_errors=True)
    return everything / ray.get_runtime_context().get_session_name()


class Metrics:
    """One ingress replica's counters, and the sums over all that share `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        # prometheus_client looks at the variable when it is imported, which Ray may have done
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
        own = CollectorRegistry()
        self._requests = Counter(
            "detserve_requests", "Answered requests", ["model", "status"], registry=own
        )
        self._seconds = Histogram(
            "detserve_request_seconds",
            "From the request's head to its answer, in the ingress",
            ["model"],
            buckets=SECONDS,
            registry=own,
        )
        self._stages = Histogram(
            "detserve_stage_seconds",
            "Of one image: queue (routing, transport, waiting) and the stages of its Task call",
            ["model", "stage"],
            buckets=SECONDS,
            registry=own,
        )
        self._batch = Histogram(
            "detserve_batch_images",
            "Images in the engine call of an image",
            ["model"],
            buckets=BATCHES,
            registry=own,
        )
        self._bytes = Histogram(
            "detserve_image_bytes",
            "Encoded images of a request",
            ["model"],
            buckets=BYTES,
            registry=own,
        )
        self._waiting = Gauge(
            "detserve_images_in_progress",
            "Images that are queued or worked on",
            ["model"],
            multiprocess_mode="livesum",
            registry=own,
        )

    def begin(self, model: str, images: int) -> None:
        self._waiting.labels(model).inc(images)

    def end(self, model: str, images: int) -> None:
        self._waiting.labels(model).dec(images)

    def observe(self, record: dict[str, Any]) -> None:
        """Count one request by its record (deployments/records.py)."""
        # a name that no model has is the client's, and would make a series of its own
        model = record.get("model", "")
        self._requests.labels(model, str(record["status"])).inc()
        if not model:
            return
        self._seconds.labels(model).observe(record["handler_ms"] / 1e3)
        self._bytes.labels(model).observe(record["image_bytes"])
        for task in record.get("tasks", ()):
            self._batch.labels(model).observe(task["batch"])
            stages = {"queue": task["queue_ms"], **task["stages_ms"]}
            for stage, spent in stages.items():
                self._stages.labels(model, stage).observe(max(0.0, spent) / 1e3)

    def scrape(self, models: Iterable[Model]) -> bytes:
        """Everything, in Prometheus's text format; with the models as they are now."""
        for path in self._folder.glob("gauge_livesum_*.db"):
            pid = int(path.stem.rpartition("_")[2])
            if not Path(f"/proc/{pid}").exists():  # what it was working on is not any more
                multiprocess.mark_process_dead(  # type: ignore[no-untyped-call]
                    pid, str(self._folder)
                )
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(  # type: ignore[no-untyped-call]
            registry, str(self._folder)
        )
        registry.register(_Now(models))
        return generate_latest(registry)


class _Now(Collector):
    """Gauges that need no files: each replica sees the same."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models = list(models)

    def collect(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily("detserve_model_ready", "1: it answers", labels=["model"])
        replicas = GaugeMetricFamily("detserve_model_replicas", "That run", labels=["model"])
        for model in self._models:
            ready.add_metric([model.name], float(model.ready))
            replicas.add_metric([model.name], model.replicas)
        yield from (ready, replicas)
        card = gpu.find()
        if card is not None:
            used = GaugeMetricFamily(
                "detserve_gpu_memory_used_bytes", "By any process", labels=["gpu"]
            )
            total = GaugeMetricFamily("detserve_gpu_memory_bytes", "There is", labels=["gpu"])
            used.add_metric([card.uuid], gpu.used_memory(card))
            total.add_metric([card.uuid], gpu.total_memory(card))
            yield from (used, total)
