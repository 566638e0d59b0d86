"""What AIPerf's runs come to: latencies of both sides, the sweep's points, and `requests.jsonl`,
the two independent records of each request joined by its id.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from qualification.aiperf import AIPerfEvidence, AIPerfRow
from qualification.evidence import InvalidResponse, parse_response
from qualification.gates import Gate
from qualification.results import Percentiles, Performance, SweepPoint
from qualification.stages import StageResult


def series(evidence: AIPerfEvidence) -> dict[str, list[float]]:
    """Milliseconds of each measured request that succeeded, by part: `client`, `handler`, `queue`,
    `task_call_wall` and the Task call's stages; the server's parts of those requests alone that
    have exactly one record with a Task call."""
    found: dict[str, list[float]] = {}
    for row in _measured(evidence):
        for name, value in _parts(evidence, row).items():
            found.setdefault(name, []).append(value)
    return found


def by_image(evidence: AIPerfEvidence) -> dict[str, dict[str, float]]:
    """The parts of `series`, each the median over the requests with an image, by the image."""
    grouped: dict[str, dict[str, list[float]]] = {}
    for row in _measured(evidence):
        for name, value in _parts(evidence, row).items():
            grouped.setdefault(name, {}).setdefault(row.image or "", []).append(value)
    return {
        name: {image: float(np.median(values)) for image, values in images.items()}
        for name, images in grouped.items()
    }


def _parts(evidence: AIPerfEvidence, row: AIPerfRow) -> dict[str, float]:
    records = evidence.records.get(row.request_id, [])
    if len(records) != 1 or not records[0].get("tasks"):
        return {"client": row.latency_ms}
    task = records[0]["tasks"][0]
    return {
        "client": row.latency_ms,
        "handler": records[0]["handler_ms"],
        "queue": task["queue_ms"],
        "task_call_wall": task["task_call_wall_ms"],
        **task["stages_ms"],
    }


def images_per_s(evidence: AIPerfEvidence) -> float | None:
    """Measured images over the time from the first start to the last end."""
    rows = _measured(evidence)
    if not rows:
        return None
    return len(rows) * 1e9 / (max(row.end_ns for row in rows) - min(row.start_ns for row in rows))


def performance(evidence: AIPerfEvidence) -> Performance | None:
    """None when a request has no record to join: there is then nothing to state."""
    measured = series(evidence)
    parts = {name: _percentiles(values) for name, values in measured.items()}
    counts = {len(values) for values in measured.values()}
    rate = images_per_s(evidence)
    if rate is None or len(parts) == 1 or len(counts) != 1:
        return None
    return Performance(
        requests=counts.pop(),
        images_per_s=rate,
        **{name: parts.pop(name) for name in ("client", "handler", "queue", "task_call_wall")},
        stages=parts,
        command=evidence.command,
    )


def sweep_point(result: StageResult) -> SweepPoint:
    """A point of the sweep and what its gates found."""
    evidence = AIPerfEvidence.model_validate(result.data)
    _, responses, joins = result.gates
    answered = sum(row.status == 200 for row in evidence.rows)
    tasks = [
        task
        for found in evidence.records.values()
        for record in found
        for task in record.get("tasks", ())
    ]
    return SweepPoint(
        point=result.stage,
        concurrency=evidence.concurrency,
        rate=evidence.rate,
        passed=all(gate.passed for gate in result.gates),
        requests=evidence.expected,
        verified=_count(responses, "verified"),
        mismatches=evidence.expected - _count(responses, "verified"),
        boxes=sum(_boxes(row) for row in evidence.rows),
        joins=evidence.expected - _count(joins, "missing_or_double"),
        errors=evidence.expected - answered,
        replicas=len({task["replica"] for task in tasks}),
        largest_batch=max((task.get("batch", 1) for task in tasks), default=1),
        performance=performance(evidence),
    )


def write_requests(path: Path, runs: Mapping[str, StageResult]) -> None:
    """`requests.jsonl`: a row for each request of each AIPerf run, by the run's stage."""
    with path.open("wb") as file:
        for stage, result in runs.items():
            evidence = AIPerfEvidence.model_validate(result.data)
            for row in joined(stage, evidence):
                file.write(orjson.dumps(row) + b"\n")


def joined(stage: str, evidence: AIPerfEvidence) -> Iterator[dict[str, Any]]:
    """The client's account of each request beside the server's, whose fields are null unless
    exactly one record has the id (`server_records` says how many do)."""
    for row in evidence.rows:
        records = evidence.records.get(row.request_id, [])
        record = records[0] if len(records) == 1 else {}
        (task,) = record.get("tasks") or [{}]
        yield {
            "stage": stage,
            "id": row.request_id,
            "phase": row.phase,
            "image": row.image,
            "status": row.status,
            "client_ms": row.latency_ms,
            "server_records": len(records),
            "server_status": record.get("status"),
            "handler_ms": record.get("handler_ms"),
            "queue_ms": task.get("queue_ms"),
            "task_call_wall_ms": task.get("task_call_wall_ms"),
            "stages_ms": task.get("stages_ms"),
            "replica": task.get("replica"),
            "batch": task.get("batch"),
            "bundle_digest": record.get("bundle_digest"),
            "response_sha256": hashlib.sha256(row.body.encode()).hexdigest(),
        }


def _measured(evidence: AIPerfEvidence) -> list[AIPerfRow]:
    return [row for row in evidence.rows if row.phase == "profiling" and row.status == 200]


def _count(gate: Gate, name: str) -> int:
    return int(gate.measured[name] or 0)


def _boxes(row: AIPerfRow) -> int:
    try:
        return sum(map(len, parse_response(row.body.encode())))
    except InvalidResponse:
        return 0


def _percentiles(values: Sequence[float]) -> Percentiles:
    p50, p95 = np.percentile(values, [50, 95])
    return Percentiles(p50_ms=float(p50), p95_ms=float(p95))
