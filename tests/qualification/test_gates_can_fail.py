"""Every gate can fail: a real fault for each, judged by the real campaign on the live application.

Each case ends with the named gate failing and an exit code that is not 0.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.home import data, home
from qualification import average_precision, comparing, rejudging, saved_run
from qualification.evidence import Seen
from qualification.stages import STAGES
from tests.conftest import PROJECT
from tests.qualification import faults

pytestmark = pytest.mark.slow

FAIL_AT = 30  # which of AIPerf's 55 requests is tampered with


@pytest.fixture(scope="module")
def qualify(application, cluster, tmp_path_factory):
    """Runs scripts/qualify.py on the running application: (exit code, the model's row)."""

    def run(
        model: str, *options: str, url: str = application.url, out: Path | None = None
    ) -> tuple[int, dict[str, Any]]:
        out = out or tmp_path_factory.mktemp(model)
        done = subprocess.run(
            [sys.executable, *_command(model, cluster, url, out), *options],
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        print(done.stdout, done.stderr)
        for again in rejudging.rejudge(saved_run.read(out)):
            assert again.agrees, again  # each verdict of this file is that of its evidence
        return done.returncode, json.loads((out / "results.json").read_text())["rows"][0]

    return run


@pytest.fixture(scope="module")
def passed_run(application, cluster, qualify, tmp_path_factory) -> tuple[int, dict, Path]:
    """A campaign on yolox-nano that is stopped by Ctrl-C after its native results are written,
    and taken up again: exit code, row and folder."""
    out = tmp_path_factory.mktemp("passed")
    stopped = subprocess.Popen(
        [sys.executable, *_command("yolox-nano", cluster, application.url, out)],
        env=os.environ,
    )
    while not (out / "yolox-nano" / "native.json").exists():
        with pytest.raises(subprocess.TimeoutExpired):  # it must not have ended by itself
            stopped.wait(0.05)
    stopped.send_signal(signal.SIGINT)
    assert stopped.wait(60) == 130
    assert not (out / "results.json").exists()
    written = (out / "yolox-nano" / "native.json").stat().st_mtime_ns
    code, row = qualify("yolox-nano", "--promote", out=out)
    assert (out / "yolox-nano" / "native.json").stat().st_mtime_ns == written
    return code, row, out


def test_a_sound_model_passes_every_gate_after_ctrl_c(passed_run) -> None:
    code, row, _ = passed_run
    assert (code, row["status"], row["passed"]) == (0, "aiperf-qualified", True)
    gates = {gate["name"]: gate["measured"] for gate in row["gates"]}
    assert gates["identity"] == {"images": 100, "identical": 100}
    assert gates["aiperf-responses"] == {"verified": 55, "responses": 55}
    assert gates["aiperf-errors"] == {"requests": 55, "errors": 0}
    assert gates["aiperf-joins"] == {"missing_or_double": 0}
    assert row["performance"]["client"]["p50_ms"] > row["performance"]["task_call_wall"]["p50_ms"]


def test_each_request_to_aiperf_is_one_line_of_the_join(passed_run) -> None:
    lines = (passed_run[2] / "yolox-nano" / "requests.jsonl").read_text().splitlines()
    joined = [json.loads(line) for line in lines]
    assert len({request["id"] for request in joined}) == len(joined) == 55
    for request in joined:
        assert (request["server_records"], request["server_status"]) == (1, 200)
        assert request["client_ms"] > request["handler_ms"] > request["task_call_wall_ms"] > 0
        assert request["task_call_wall_ms"] >= max(request["stages_ms"].values())


def test_models_shows_the_status_that_was_reached_and_who_signed_it_off(passed_run, http) -> None:
    entries = {entry["id"]: entry for entry in http.get("/v1/models").json()["data"]}
    sound, other = entries["yolox-nano"], entries["yolov8n-coco"]
    assert sound["qualification"]["status"] == "aiperf-qualified"
    assert other["qualification"] == {"status": "implemented"}
    assert sound["promoted"]["bundle_digest"] == sound["bundle_digest"]
    assert sound["promoted"]["run"] == passed_run[2].name
    assert {"identity", "no-cache", "aiperf-joins"} <= set(sound["promoted"]["gates"])
    assert other["promoted"] is None


def test_a_run_says_nothing_of_this_machine_and_holds_no_image_but_its_pictures(
    passed_run,
) -> None:
    places = [str(PROJECT), str(home()), str(data()), str(passed_run[2]), sys.prefix, "/tmp/"]
    (first, *_) = sorted((data() / "coco128" / "images").iterdir())
    forbidden = [place.encode() for place in places]
    forbidden.append(base64.b64encode(first.read_bytes())[:200])
    files = [path for path in passed_run[2].rglob("*") if path.is_file()]
    assert len(files) > 20
    found = [
        (path.name, words[:40])
        for path in files
        for words in forbidden
        if words in path.read_bytes()
    ]
    assert found == []


@pytest.fixture
def copied(passed_run, tmp_path) -> Path:
    shutil.copytree(passed_run[2], tmp_path / "copy")
    return tmp_path / "copy"


def test_an_edited_figure_or_verdict_shows_when_a_run_is_judged_again(copied) -> None:
    edit(copied, "dataset", lambda data: data["native"].update(map=0.9))
    edit(copied, "identity", lambda data: data["responses"][3].__setitem__(1, "{}"))
    edit(copied, "aiperf", lambda data: data["rows"][3].update(status=500))
    (again,) = rejudging.rejudge(saved_run.read(copied))
    wrong = {gate.gate for gate in again.gates if not gate.agrees}
    assert wrong == {"identity", "aiperf-errors", "aiperf-responses", "aiperf-joins"}
    assert again.now == "family-validated"
    script = [sys.executable, str(PROJECT / "scripts" / "rejudge.py")]
    done = subprocess.run([*script, str(copied)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "! identity" in done.stdout
    edit(copied, "identity", lambda data: data["responses"].pop())
    done = _script("rejudge", copied)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "yolox-nano/identity.json is damaged" in done.stderr
    done = subprocess.run(
        [*script, str(copied.parent)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_compare_is_quiet_on_the_same_run_and_flags_a_planted_map_drop(passed_run, copied) -> None:
    before = saved_run.read(passed_run[2])
    same = comparing.compare(before, saved_run.read(copied))
    assert not same.regressed
    assert not any(shift.significant for shift in same.models[0].shifts)

    def lose(data: dict[str, Any]) -> None:
        """Forget every detection of the fewest images that cost 0.03 of mAP."""
        target = before.targets["yolox-nano"]
        whole = average_precision.matches(target.dataset, target.seen("native")).map
        for one in data["seen"]:
            one.update(boxes=[], scores=[], class_ids=[], labels=[])
            seen = [Seen.from_json(each) for each in data["seen"]]
            if whole - average_precision.matches(target.dataset, seen).map >= 0.03:
                return

    edit(copied, "native", lose)
    worse = comparing.compare(before, saved_run.read(copied))
    shifts = {shift.what: shift for shift in worse.models[0].shifts}
    assert 0.03 <= shifts["map"].a - shifts["map"].b < 0.05
    assert shifts["map"].regression


def test_compare_flags_a_latency_that_rose_by_30_percent_in_both_measurements(
    passed_run, copied
) -> None:
    def slow(data: dict[str, Any]) -> None:
        for row in data["rows"]:
            row["latency_ms"] *= 1.3

    def slower(data: dict[str, Any]) -> None:
        data["latency_ms"] = [1.3 * value for value in data["latency_ms"]]

    edit(copied, "aiperf", slow)
    assert not comparing.compare(saved_run.read(passed_run[2]), saved_run.read(copied)).regressed
    edit(copied, "identity", slower)
    found = comparing.compare(saved_run.read(passed_run[2]), saved_run.read(copied))
    regressed = {shift.what for shift in found.models[0].shifts if shift.regression}
    assert regressed == {"client", "client, identity"}
    done = _script("compare", passed_run[2], copied)
    assert done.returncode == 1
    assert "! client, identity" in done.stdout


def _script(name: str, *runs: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(PROJECT / "scripts" / f"{name}.py"), *map(str, runs)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def edit(run: Path, stage: str, change: Callable[[dict[str, Any]], Any]) -> None:
    path = run / "yolox-nano" / f"{stage}.json"
    document = json.loads(path.read_text())
    change(document["data"])
    path.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def wrong_models(application, few) -> Iterator[dict[str, dict[str, Any]]]:
    """Models with a fault each, served beside the sound ones."""
    sound = yaml.safe_load((home() / "catalogue" / f"{few}.yaml").read_text())
    wrong_space = sound | {
        "id": "wrong-label-space",
        # category ids where the dataset has names: nothing is ever matched
        "labels": [str(index) for index in range(80)],
    }
    (home() / "catalogue" / "wrong-label-space.yaml").write_text(yaml.safe_dump(wrong_space))
    models = {
        "labels-permuted": {
            "bundle": faults.wrong_bundle(
                few, "labels-permuted", labels=lambda labels: (*labels[1:], labels[0])
            )
        },
        "boxes-shifted": {
            "bundle": faults.wrong_bundle(
                few, "boxes-shifted", graph=faults.output_through("boxes", "Add", 2.0)
            )
        },
        "scores-halved": {
            "bundle": faults.wrong_bundle(
                few, "scores-halved", graph=faults.output_through("scores", "Mul", 0.5)
            )
        },
        "random-weights": {
            "bundle": faults.wrong_bundle(few, "random-weights", graph=faults.random_weights)
        },
        "byte-changed": {"bundle": faults.wrong_bundle(few, "byte-changed")},
        "wrong-label-space": {"checkpoint": "wrong-label-space"},
    }
    entries = application.deploy(models)
    assert all(entries[name]["ready"] for name in models), entries
    yield entries
    for name in models:
        application.models.pop(name, None)
    application.deploy({})
    (home() / "catalogue" / "wrong-label-space.yaml").unlink()


@pytest.mark.parametrize(
    ("model", "gate", "status"),
    [
        ("labels-permuted", "owning-case", "implemented"),
        ("boxes-shifted", "owning-case", "implemented"),
        ("scores-halved", "owning-case", "implemented"),
        ("random-weights", "owning-case", "implemented"),
        ("wrong-label-space", "reference-floor", "implemented"),
    ],
)
def test_a_wrong_model_fails_its_gate(wrong_models, qualify, model, gate, status) -> None:
    code, row = qualify(model)
    assert code == 1
    assert _failed(row) == [gate]
    assert row["status"] == status
    assert "aiperf" in row["not_run"]  # nothing is timed on a bundle that was not validated
    if gate == "reference-floor":  # zero against zero would pass the drop gates alone
        assert (row["native"]["map"], row["reference"]["map"]) == (0, 0)
        passed = {gate["name"] for gate in row["gates"] if gate["passed"]}
        assert {"owning-case", "map", "map50"} <= passed


def test_an_engine_file_changed_under_a_running_replica_fails_the_bundle_gate(
    wrong_models, qualify
) -> None:
    faults.change_one_byte(home() / "bundles" / "wrong" / "byte-changed" / faults.ENGINE_FILE)
    code, row = qualify("byte-changed")
    assert code == 1
    assert _failed(row) == ["bundle"]
    assert "engine.onnx was changed" in row["gates"][0]["detail"]
    assert row["status"] == "planned"


def test_a_changed_engine_file_is_not_served_and_the_others_are(
    few, wrong_models, application, qualify, http
) -> None:
    folder = faults.wrong_bundle(few, "refused")
    faults.change_one_byte(Path(folder) / faults.ENGINE_FILE)
    entries = application.deploy({"refused": {"bundle": folder}})
    assert entries["refused"]["ready"] is False
    assert "engine.onnx was changed" in entries["refused"]["reason"]
    assert entries["yolox-nano"]["ready"] is True
    ready = http.get("/v1/health/ready")
    assert (ready.status_code, list(ready.json()["waiting_for"])) == (503, ["refused"])
    code, row = qualify("refused")
    assert (code, _failed(row)) == (1, ["bundle"])
    application.remove("refused")


def test_a_model_that_is_not_served_fails_the_bundle_gate(application, qualify) -> None:
    code, row = qualify("absent")
    assert (code, _failed(row), row["status"]) == (1, ["bundle"], "planned")


def test_answers_that_depend_on_anything_but_the_image_fail_a_probe(
    application, qualify, few, tmp_path
) -> None:
    """A cache, a memory of the image before, and work on another image at the same time."""
    found = {"caching": "no-cache", "remembering": "any-order", "distracted": "any-order"}
    models = {name: {"checkpoint": few, "fault": name} for name in found}
    application.deploy(models, builder="tests.qualification.faults:build")
    chosen = ("--stages", "probes", "--model", "remembering", "--model", "distracted")
    code, _ = qualify("caching", *chosen, out=tmp_path)
    assert code == 1
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {row["model"]: _failed(row) for row in rows} == {
        name: [gate] for name, gate in found.items()
    }
    assert all(row["not_run"]["aiperf"] == "not chosen" for row in rows)
    for name in found:
        del application.models[name]
    application.deploy({})


def _drop_box_over_http(agent: str, number: int, status: int, body: bytes) -> tuple[int, bytes]:
    wrong = agent != "aiperf" and number == 7
    return status, faults.drop_one_box(body) if wrong else body


def _fail_one(agent: str, number: int, status: int, body: bytes) -> tuple[int, bytes]:
    if agent == "aiperf" and number == FAIL_AT:
        return 500, b'{"error": {"code": "internal_error"}}'
    return status, body


class _SwapOne:
    """Answers one of AIPerf's requests with the answer to the one before."""

    def __init__(self) -> None:
        self._before = b""

    def __call__(self, agent: str, number: int, status: int, body: bytes) -> tuple[int, bytes]:
        before, self._before = self._before, body
        wrong = agent == "aiperf" and number == FAIL_AT
        return status, before if wrong else body


@pytest.mark.parametrize(
    ("tamper", "failed", "status"),
    [
        (_drop_box_over_http, ["identity"], "family-validated"),
        # the failed request's answer is not verified, and its status is not the recorded one
        (_fail_one, ["aiperf-errors", "aiperf-responses", "aiperf-joins"], "family-validated"),
        (_SwapOne(), ["aiperf-responses"], "family-validated"),
    ],
    ids=["a box dropped over HTTP", "one AIPerf request failed", "two AIPerf responses swapped"],
)
def test_an_answer_changed_on_the_way_fails_its_gate(
    application, qualify, passed_run, tmp_path, tamper, failed, status
) -> None:
    # native results and the gates before HTTP are taken up from the run that passed
    before_http = STAGES[: STAGES.index("identity")]
    (tmp_path / "yolox-nano").mkdir()
    for stage in before_http:
        shutil.copy(passed_run[2] / "yolox-nano" / f"{stage}.json", tmp_path / "yolox-nano")
    with faults.tampering_proxy(application.url, tamper) as url:
        code, row = qualify("yolox-nano", url=url, out=tmp_path)
    assert code == 1
    assert _failed(row) == failed
    assert row["status"] == status


def _command(model: str, address: str, url: str, out: Path) -> list[str]:
    return [
        str(PROJECT / "scripts" / "qualify.py"),
        *("--address", address, "--url", url, "--model", model, "--out", str(out)),
    ]


def _failed(row: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in row["gates"] if not gate["passed"]]
