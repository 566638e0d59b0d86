"""Latencies of an AIPerf run, request by request: the client's clock and the server's record."""

from collections.abc import Mapping, Sequence

import numpy as np

from qualification.aiperf import AIPerfEvidence

# what contains what: client > handler > queue and Task call > its stages
DEPTH = {"client": 0, "handler": 1, "queue": 2, "task_call_wall": 2}
STAGE_DEPTH = 3


def series(evidence: AIPerfEvidence) -> dict[str, list[float]]:
    """Milliseconds of each measured request that succeeded, by part; the server's parts of those
    alone that have exactly one record with a Task call."""
    rows = [row for row in evidence.rows if row.phase == "profiling" and row.status == 200]
    found: dict[str, list[float]] = {"client": [row.latency_ms for row in rows]}
    for row in rows:
        records = evidence.records.get(row.request_id, [])
        if len(records) != 1 or not records[0].get("tasks"):
            continue
        task = records[0]["tasks"][0]
        parts: Mapping[str, float] = {
            "handler": records[0]["handler_ms"],
            "queue": task["queue_ms"],
            "task_call_wall": task["task_call_wall_ms"],
            **task["stages_ms"],
        }
        for name, value in parts.items():
            found.setdefault(name, []).append(value)
    return {name: values for name, values in found.items() if values}


def images_per_s(evidence: AIPerfEvidence) -> float | None:
    """Measured images over the time from the first start to the last end."""
    rows = [row for row in evidence.rows if row.phase == "profiling" and row.status == 200]
    if not rows:
        return None
    return len(rows) * 1e9 / (max(row.end_ns for row in rows) - min(row.start_ns for row in rows))


def quantile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))
