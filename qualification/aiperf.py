"""Runs the published AIPerf against the live application, and reads what it recorded.

AIPerf decides nothing here: it exits 0 when requests failed and takes `{"data": [{}]}` for a
success, so its raw records are read and every response is checked by the gates.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel

from deployments import records
from qualification.client import data_url
from qualification.datasets.coco import DatasetImage

WARM_UP = 5
START_S = 120  # that AIPerf may take besides its requests
REQUEST_S = 15  # of a request, on average, that a run is bounded by
POLL_S = 1.0


@dataclass(frozen=True)
class Point:
    """One run of AIPerf: `requests` measured after the warm-up, with `concurrency` requests at
    once, or `rate` requests begun each second whatever is still open.

    name: of its stage and its gates.
    """

    name: str
    requests: int
    concurrency: int | None = None
    rate: float | None = None

    @classmethod
    def at_concurrency(cls, concurrency: int, requests: int) -> "Point":
        return cls(f"aiperf-c{concurrency}", requests, concurrency=concurrency)

    @classmethod
    def at_rate(cls, rate: float, requests: int) -> "Point":
        return cls(f"aiperf-r{rate:g}", requests, rate=rate)

    @property
    def timeout_s(self) -> float:
        """After which the run is given up; a server that is merely slow stays below it."""
        paced = self.requests / self.rate if self.rate else 0
        return START_S + (WARM_UP + self.requests) * REQUEST_S + paced


# The run that `aiperf-qualified` needs.
QUALIFYING = Point("aiperf", 50, concurrency=1)


class AIPerfRow(BaseModel):
    """One request of AIPerf's raw records.

    image: name of the dataset image it sent, found by the payload itself.
    """

    request_id: str
    phase: str
    image: str | None
    status: int
    body: str
    latency_ms: float
    start_ns: int
    end_ns: int


class AIPerfEvidence(BaseModel):
    """A whole run: the client's rows, and the server's records under the same request ids.

    expected: requests, the warm-up's too. concurrency, rate: of the point; one of them is None.
    """

    command: list[str]
    expected: int
    concurrency: int | None = 1
    rate: float | None = None
    rows: list[AIPerfRow]
    records: dict[str, list[dict[str, Any]]]
    problems: list[str]  # what AIPerf itself reports as failed


def run(
    *,
    url: str,
    model: str,
    images: Sequence[DatasetImage],
    folder: Path,
    point: Point,
    progress: Callable[[int, int], None],
) -> AIPerfEvidence:
    """5 warm-up requests and those of `point`, one image a request.

    folder: made here, holds AIPerf's own files afterwards. It must be a fresh one, because AIPerf
    merges what an earlier run left.
    progress: called every second with (seconds gone, seconds there are).
    """
    folder.mkdir(parents=True)
    # data URLs, since AIPerf encodes the files it is given anew
    urls = {image.name: data_url(image.path.read_bytes()) for image in images}
    inputs = folder / "inputs.jsonl"
    with inputs.open("w") as file:
        for name, encoded in urls.items():
            file.write(json.dumps({"session_id": name, "images": [encoded]}) + "\n")
    arguments = command(url, model, point)
    started = time.time()
    with (
        (folder / "aiperf.log").open("w") as log,
        # AIPerf's sockets need a short path, and a killed run leaves files behind
        tempfile.TemporaryDirectory(prefix="ap", dir="/tmp") as scratch,
    ):
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            env={**os.environ, "TMPDIR": scratch},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            late = not _ended(process, point.timeout_s, progress)
        finally:
            if process.poll() is None:
                process.kill()  # its workers leave with it
        exit_code = process.wait()
    artifacts = folder / "artifacts"
    by_payload = {hashlib.sha256(value.encode()).hexdigest(): name for name, value in urls.items()}
    rows = _rows(artifacts, by_payload)
    # the payloads are the dataset's images again, 40 % larger
    raw = (*artifacts.glob("profile_export_raw.jsonl"), *artifacts.glob("raw_records/*"))
    for copy in (inputs, artifacts / "inputs.json", *raw):
        copy.unlink(missing_ok=True)
    _without_paths(folder, scratch)
    problems = [f"AIPerf was stopped after {point.timeout_s:.0f} s"] if late else []
    return AIPerfEvidence(
        command=[Path(arguments[0]).name, *arguments[1:]],
        expected=WARM_UP + point.requests,
        concurrency=point.concurrency,
        rate=point.rate,
        rows=rows,
        records=records.by_id({row.request_id for row in rows}, since=started),
        problems=problems + _problems(artifacts, exit_code, point.requests),
    )


def _without_paths(folder: Path, scratch: str) -> None:
    """AIPerf writes where it ran into its files; a run is handed on, and says nothing of that."""
    told = {str(folder): b".", scratch: b"TMPDIR", str(Path(sys.executable).parent): b"bin"}
    for path in folder.rglob("*"):
        if path.is_file():
            content = cleaned = path.read_bytes()
            for place, word in told.items():
                cleaned = cleaned.replace(place.encode(), word)
            if cleaned != content:
                path.write_bytes(cleaned)


def _ended(
    process: "subprocess.Popen[bytes]", timeout_s: float, progress: Callable[[int, int], None]
) -> bool:
    """Whether it ended by itself in time."""
    start = time.monotonic()
    while (gone := time.monotonic() - start) < timeout_s:
        progress(int(gone), int(timeout_s))
        try:
            process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            continue
        return True
    return False


def command(url: str, model: str, point: Point) -> list[str]:
    """What runs AIPerf at that point, in the folder of its inputs."""
    if point.rate is None:
        pace = ("--concurrency", str(point.concurrency))
    else:
        pace = ("--request-rate", f"{point.rate:g}")
    return [
        str(Path(sys.executable).with_name("aiperf")),
        "profile",
        *("--model", model, "--url", url),
        *("--endpoint-type", "image_retrieval", "--endpoint", "/v1/infer"),
        *("--input-file", "inputs.jsonl", "--custom-dataset-type", "single_turn"),
        *pace,
        *("--warmup-request-count", str(WARM_UP), "--request-count", str(point.requests)),
        *("--random-seed", "1", "--extra-inputs", f"model:{model}"),
        *("--export-level", "raw", "--export-http-trace"),
        *("--no-gpu-telemetry", "--no-server-metrics", "--ui", "none"),
        *("--request-timeout-seconds", "60", "--artifact-dir", "artifacts"),
    ]


def _rows(artifacts: Path, by_payload: dict[str, str]) -> list[AIPerfRow]:
    path = artifacts / "profile_export_raw.jsonl"
    if not path.is_file():  # AIPerf merges no raw file when every request failed
        return []
    rows = []
    for line in path.read_bytes().splitlines():
        row = orjson.loads(line)
        metadata = row["metadata"]
        sent = row["payload"]["input"][0]["url"]
        responses = row.get("responses") or []
        start, end = metadata["request_start_ns"], metadata["request_end_ns"]
        rows.append(
            AIPerfRow(
                request_id=metadata["x_request_id"],
                phase=metadata["benchmark_phase"],
                image=by_payload.get(hashlib.sha256(sent.encode()).hexdigest()),
                status=row.get("status") or 0,
                body=responses[0].get("text") or "" if responses else "",
                latency_ms=(end - start) / 1e6,
                start_ns=start,
                end_ns=end,
            )
        )
    return sorted(rows, key=lambda row: row.start_ns)


def _problems(artifacts: Path, exit_code: int, requests: int) -> list[str]:
    """What AIPerf's own files say went wrong, besides single requests."""
    problems = [f"AIPerf ended with exit code {exit_code}"] if exit_code else []
    summary_file = artifacts / "profile_export_aiperf.json"
    if not summary_file.is_file():
        return [*problems, "AIPerf wrote no summary: see aiperf.log"]
    summary = json.loads(summary_file.read_text())
    if summary.get("was_cancelled") or not summary.get("is_complete"):
        problems.append("AIPerf says the run was cancelled or is not complete")
    counted = summary.get("request_count", {}).get("avg")
    if counted != requests:
        problems.append(f"AIPerf counts {counted} successes of {requests}")
    for line in (artifacts / "profile_export.jsonl").read_bytes().splitlines():
        row = orjson.loads(line)
        if row.get("error"):
            request_id = row["metadata"]["x_request_id"]
            problems.append(f"request {request_id}: AIPerf reports {row['error'].get('type')}")
    return problems
