"""Rejudging: whatever is taken from a run, added to it or changed in it after the fact shows.

The run is written by the code that judges campaigns, from detections made by hand.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployments import wire
from models import catalogue
from models.errors import QualificationError
from models.family import family
from models.status import Status
from qualification import figures, judging, rejudging, saved_run, stages
from qualification.evidence import Seen
from qualification.gates import Gate
from qualification.results import ModelRow
from qualification.stages import StageResult
from qualification.target import Target
from tests.qualification.test_mean_ap import CAT, DOG, TRUTH, dataset, seen
from tests.qualification.test_report import campaign

Document = dict[str, Any]
JUDGED = ("bundle", "native", "reference", "owning-case", "dataset", "identity")
MODEL = "made"
DIGEST = "0" * 64
CHOSEN = "not chosen"


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A finished run of one model, the stages after `identity` not chosen."""
    folder = tmp_path_factory.mktemp("run")
    checkpoint = catalogue.load("yolox-nano")
    served = checkpoint.model_dump(mode="json")
    config = {"checkpoint": checkpoint.id, "bundle": None, "threshold": None}
    described = {
        **{name: served[name] for name in ("family", "weights", "canvas", "licence", "threshold")},
        "checkpoint": checkpoint.id,
        "labels": list(checkpoint.labels),
        "engine": "onnxruntime",
        "precision": "fp32",
        "bundle_digest": DIGEST,
        "config": config | {"engine": "auto", "precision": "auto"},
    }
    detections = [seen("1.jpg", ("person", CAT, 0.9)), seen("2.jpg", ("person", DOG, 0.6))]
    found = [one.to_json() for one in detections]
    categories = [{"id": 3, "name": "person"}, {"id": 17, "name": "dog"}]
    criteria = family(checkpoint.family).criteria
    target = Target(MODEL, described, checkpoint, criteria, dataset(TRUTH, 2, categories))
    saved_run.write_dataset(folder, target.dataset)
    data: dict[str, Document] = {
        "bundle": {
            "on_disk": judging.on_disk(DIGEST),
            "described": described,
            "listed": described,
            "checkpoint": saved_run.without_paths(checkpoint),
            "criteria": criteria.bounds(),
            "dataset": target.dataset.digest,
        },
        "native": {"seen": found},
        "reference": {"seen": found, "labels": list(checkpoint.labels)},
        "identity": {
            "responses": [[200, answer(one)] for one in detections],
            "latency_ms": [1.0, 2.0],
        },
    }
    gates: list[Gate] = []
    for stage in JUDGED:
        what = data.get(stage) or judging.compute(target, stage)
        judged = judging.judge(target, stage, what)
        result = StageResult(stage=stage, key=target.key, gates=judged, data=what, seconds=1)
        target.results[stage] = result
        stages.save(stages.path(folder, MODEL, stage), result)
        gates += judged
    row = ModelRow(
        model=MODEL,
        passed=True,
        status=Status.FAMILY_VALIDATED,
        gates=gates,
        not_run=dict.fromkeys(("probes", "aiperf", "bundle-after"), CHOSEN),
        family=checkpoint.family,
        seconds=1,
    )
    figures.state(row, target.results)
    results = campaign(row)
    results.expected = Status.FAMILY_VALIDATED
    (folder / "results.json").write_text(results.model_dump_json())
    return folder


def answer(found: Seen) -> str:
    return wire.response(MODEL, [(found.detections, found.labels)], 0.1).decode()


@pytest.fixture
def run(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run"))


def again(folder: Path) -> rejudging.ModelVerdict:
    (only,) = rejudging.rejudge(saved_run.read(folder))
    return only


def test_an_untouched_run_is_judged_as_it_was_without_data(run, monkeypatch) -> None:
    monkeypatch.delenv("DETSERVE_DATA", raising=False)
    found = again(run)
    assert found.agrees
    assert (found.then, found.now) == ("family-validated", "family-validated")
    assert [gate.gate for gate in found.gates] == [
        *("bundle", "reconciliation", "owning-case", "reference-floor", "map", "map50", "identity")
    ]


@pytest.mark.parametrize(
    ("removed", "now", "absent"),
    [
        (["identity"], "family-validated", {"identity"}),
        (["dataset", "owning-case"], "implemented", {"owning-case", "map", "map50"}),
        (["native"], "planned", {"owning-case", "map", "identity"}),
        (["bundle"], "planned", {"bundle", "owning-case", "map", "identity"}),
        (JUDGED, "planned", {"bundle", "owning-case", "map", "identity"}),
    ],
)
def test_a_pass_whose_evidence_was_removed_is_none(run, removed, now, absent) -> None:
    for stage in removed:
        (run / MODEL / f"{stage}.json").unlink()
    found = again(run)
    assert not found.agrees
    assert found.now == now
    assert absent <= {gate.gate for gate in found.gates if gate.then and gate.now is None}


def change(folder: Path, name: str, edit: Callable[[Document], Any]) -> None:
    path = folder / name
    document = json.loads(path.read_text())
    edit(document.get("data", document))
    path.write_text(json.dumps(document))


def _lose_a_box(data: Document) -> None:
    data["seen"][0].update(boxes=[], scores=[], class_ids=[], labels=[])


@pytest.mark.parametrize(
    ("name", "edit", "shown"),
    [
        (f"{MODEL}/native.json", _lose_a_box, "owning-case"),
        (
            f"{MODEL}/identity.json",
            lambda data: data["responses"][0].__setitem__(0, 500),
            "identity",
        ),
        (
            f"{MODEL}/bundle.json",
            lambda data: data["checkpoint"]["gates"].update(map_drop=0.5),
            "needed was drop <= 0.02 (pycocotools), is drop <= 0.5 (pycocotools)",
        ),
        (
            f"{MODEL}/bundle.json",
            lambda data: data["criteria"].update(score=0.4),
            "score < 0.005, side_px < 1, is on every image",
        ),
        (
            f"{MODEL}/bundle.json",
            lambda data: data["described"].update(threshold=0.1),
            "of another bundle, dataset or setting",
        ),
        (
            "results.json",
            lambda run: run["rows"][0]["native"].update(map=0.9),
            "native.map was 0.9",
        ),
        (
            "results.json",
            lambda run: run["rows"][0]["statistics"].update(worst_images=[]),
            "statistics.worst_images is not the same",
        ),
        ("results.json", lambda run: run["rows"][0]["gates"].pop(), "identity"),
        (
            "results.json",
            lambda run: run["rows"][0]["gates"][0].update(passed=False),
            "results.json does not say what the stage does",
        ),
        ("results.json", lambda run: run["rows"][0].update(status="aiperf-qualified"), "aiperf-q"),
        ("results.json", lambda run: run.update(expected="aiperf-qualified"), "passed was True"),
        ("results.json", lambda run: run["rows"][0].update(passed=False), "every model passed"),
    ],
)
def test_what_was_changed_after_the_fact_shows(run, name, edit, shown) -> None:
    change(run, name, edit)
    found = again(run)
    assert not found.agrees
    gates = [gate.model_dump_json() for gate in found.gates if not gate.agrees]
    assert shown in "\n".join([*gates, *found.figures, str(found.then)])


def test_bounds_are_those_of_the_run_and_not_of_the_code_that_judges_again(
    run, monkeypatch
) -> None:
    owner = family("yolox")
    monkeypatch.setattr(type(owner), "criteria", owner.criteria.bounded({"score": 1, "side_px": 9}))
    assert again(run).agrees


def test_a_stage_that_could_not_run_stands_as_it_was(run) -> None:
    """It failed and left no evidence, so there is nothing to judge and nothing to doubt."""
    (run / MODEL / "identity.json").unlink()
    failed = Gate(name="identity", passed=False, measured={}, needed="the stage", detail="lost")

    def lost(run: dict[str, Any]) -> None:
        run["rows"][0]["gates"][-1] = failed.model_dump()
        run["rows"][0]["passed"] = run["passed"] = False

    change(run, "results.json", lost)
    found = again(run)
    assert found.agrees
    assert (found.gates[-1].then, found.gates[-1].now) == (False, None)


def test_a_pass_with_a_failed_gate_below_what_is_expected_shows(run) -> None:
    def lost(run: dict[str, Any]) -> None:
        run["rows"][0]["gates"][-1].update(passed=False)
        run["expected"] = "implemented"

    change(run, "results.json", lost)
    assert "passed was True, gate identity failed" in again(run).figures


def test_a_stage_left_over_from_an_earlier_attempt_counts_for_nothing(run) -> None:
    shutil.copy(run / MODEL / "identity.json", run / MODEL / "bundle-after.json")
    assert again(run).agrees


def test_an_unfinished_run_is_judged_as_far_as_it_got(run) -> None:
    (run / "results.json").unlink()
    (run / MODEL / "identity.json").unlink()
    found = again(run)
    assert found.agrees
    assert (found.then, found.now) == (None, "family-validated")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda run: _cut(run / MODEL / "native.json"), "native.json is damaged"),
        (lambda run: _cut(run / "results.json"), "results.json is damaged"),
        (
            lambda run: change(run, f"{MODEL}/native.json", lambda data: data["seen"].pop()),
            "owning-case.json is damaged",
        ),
        (
            lambda run: change(run, f"{MODEL}/bundle.json", lambda data: data.pop("criteria")),
            "bundle.json is damaged or of another version (KeyError: 'criteria')",
        ),
        (lambda run: shutil.rmtree(run / "datasets"), "has no datasets/"),
        (lambda run: shutil.rmtree(run), "is not there"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(run, damage, sentence) -> None:
    damage(run)
    with pytest.raises(QualificationError) as refused:
        again(run)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "code"), [([], 0), (["--json"], 0), (["--model", "other"], 2)], ids=str
)
def test_rejudge_as_a_command(run_script, run, options, code) -> None:
    done = run_script("rejudge.py", run, *options)
    assert (done.returncode, done.stderr.count("\n")) == (code, code // 2)
    if options == ["--json"]:
        (found,) = json.loads(done.stdout)
        assert found["gates"][0]["gate"] == "bundle"


def test_a_run_of_another_version_is_no_regression(run_script, run, saved) -> None:
    """Whatever cannot be compared ends with 2, as 1 would say that something got worse."""
    change(run, f"{MODEL}/identity.json", lambda data: data.pop("latency_ms"))
    done = run_script("compare.py", saved, run)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
