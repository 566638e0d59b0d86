"""AIPerf's runs: points, the two records of each request joined, and what these come to."""

import json
from pathlib import Path
from typing import Any

import pytest

from qualification import aiperf, gates, performance
from qualification.aiperf import QUALIFYING, AIPerfEvidence, Point
from qualification.stages import StageResult
from tests.qualification.test_gates import DIGEST, NATIVE, row

SENT = [
    row(0, phase="warmup", latency_ms=90.0, start_ns=0, end_ns=90_000_000),
    row(1, latency_ms=10.0, start_ns=100_000_000, end_ns=110_000_000),
    row(2, latency_ms=30.0, start_ns=100_000_000, end_ns=300_000_000),
]


def record(replica: str, **changes: Any) -> dict[str, Any]:
    task = {
        "replica": replica,
        "queue_ms": 2.0,
        "task_call_wall_ms": 6.0,
        "stages_ms": {"decode": 1.0, "engine": 4.0},
        "batch": 3,
    }
    fixed = {"status": 200, "bundle_digest": DIGEST, "handler_ms": 8.0, "tasks": [task]}
    return fixed | changes


def result(**changes: Any) -> StageResult:
    fields: dict[str, Any] = {
        "command": ["aiperf"],
        "expected": 3,
        "concurrency": 8,
        "rows": SENT,
        "records": {"id-0": [record("r1")], "id-1": [record("r1")], "id-2": [record("r2")]},
        "problems": [],
    }
    evidence = AIPerfEvidence(**(fields | changes))
    return StageResult(
        stage="aiperf-c8",
        key="k",
        gates=gates.aiperf(NATIVE, evidence, DIGEST, "aiperf-c8"),
        data=evidence.model_dump(),
        seconds=1,
    )


def test_a_point_that_passed_counts_what_was_verified() -> None:
    point = performance.sweep_point(result())
    assert point.passed
    assert (point.concurrency, point.rate, point.replicas) == (8, None, 2)
    assert (point.requests, point.verified, point.joins) == (3, 3, 3)
    assert (point.boxes, point.mismatches, point.errors) == (5, 0, 0)
    assert point.largest_batch == 3
    assert point.performance is not None
    assert point.performance.requests == 2  # without the warm-up
    assert point.performance.client.p50_ms == 20
    assert point.performance.images_per_s == pytest.approx(10)
    assert point.performance.stages["engine"].p50_ms == 4


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({"rows": SENT[:2]}, {"verified": 2, "mismatches": 1, "joins": 2, "errors": 1}),
        (
            {"rows": [*SENT[:2], row(2, body=SENT[1].body)]},
            {"verified": 2, "mismatches": 1, "joins": 3, "errors": 0},
        ),
        (
            {
                "rows": [*SENT[:2], row(2, status=503, body="busy")],
                "records": {
                    **{f"id-{place}": [record("r1")] for place in range(2)},
                    "id-2": [{"status": 503, "handler_ms": 1.0}],
                },
            },
            {"verified": 2, "mismatches": 1, "joins": 3, "errors": 1},
        ),
        (
            {"records": {"id-0": [record("r1")] * 2, "id-1": [record("r1")]}},
            {"verified": 3, "mismatches": 0, "joins": 1, "errors": 0},
        ),
    ],
    ids=["one missing", "one wrong", "one refused", "one join double and one missing"],
)
def test_a_point_with_one_bad_request_fails(changes: dict[str, Any], counted: dict[str, int]):
    point = performance.sweep_point(result(**changes))
    assert not point.passed
    assert {name: getattr(point, name) for name in counted} == counted


def test_each_request_is_a_line_of_both_accounts(tmp_path: Path) -> None:
    double = {"id-0": [record("r1")], "id-1": [record("r1")] * 2}
    path = tmp_path / "requests.jsonl"
    performance.write_requests(path, {"aiperf": result(), "aiperf-c8": result(records=double)})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["stage"], line["id"]) for line in lines] == [
        (stage, f"id-{place}") for stage in ("aiperf", "aiperf-c8") for place in range(3)
    ]
    single = lines[3]
    assert (single["client_ms"], single["handler_ms"], single["queue_ms"]) == (90, 8, 2)
    assert (single["task_call_wall_ms"], single["stages_ms"]["engine"]) == (6, 4)
    assert (single["phase"], single["image"], single["replica"]) == ("warmup", "a.jpg", "r1")
    for line, records in zip(lines[4:], (2, 0), strict=True):
        assert line["server_records"] == records
        assert (line["handler_ms"], line["replica"], line["bundle_digest"]) == (None, None, None)


@pytest.mark.parametrize(
    ("point", "name", "pace"),
    [
        (QUALIFYING, "aiperf", ["--concurrency", "1"]),
        (Point.at_concurrency(16, 200), "aiperf-c16", ["--concurrency", "16"]),
        (Point.at_rate(12.5, 200), "aiperf-r12.5", ["--request-rate", "12.5"]),
    ],
)
def test_a_point_is_one_command(point: Point, name: str, pace: list[str]) -> None:
    command = aiperf.command("http://127.0.0.1:8000", "m", point)
    assert point.name == name
    assert command[command.index(pace[0]) + 1] == pace[1]
    assert {"--concurrency", "--request-rate"} & set(command) == {pace[0]}
    assert command[command.index("--request-count") + 1] == str(point.requests)


def test_the_time_a_point_may_take_grows_with_its_requests_and_their_pace() -> None:
    few, many = Point.at_concurrency(8, 50), Point.at_concurrency(8, 500)
    slow = Point.at_rate(0.1, 50)
    assert few.timeout_s < slow.timeout_s < many.timeout_s
    assert slow.timeout_s > slow.requests / 0.1
