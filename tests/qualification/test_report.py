"""The report shows every figure of the results, and results.json is what its schema says."""

import json
from typing import Any

import jsonschema
import pytest

from models.status import Status
from qualification import report, results
from qualification.gates import Gate
from qualification.mean_ap import MeanAP
from qualification.results import (
    DatasetIdentity,
    Environment,
    ImageSizes,
    ModelRow,
    Percentiles,
    Performance,
    Results,
)

DIGEST = "0123456789abcdef" * 4


def gate(name: str, passed: bool = True, detail: str = "", **measured: Any) -> Gate:
    return Gate(name=name, passed=passed, measured=measured, needed=f"need {name}", detail=detail)


def times(p50: float) -> Percentiles:
    return Percentiles(p50_ms=p50, p95_ms=p50 + 1)


GATES = [
    gate("bundle", served=DIGEST, on_disk=DIGEST),
    gate("owning-case", images=100, boxes=325, score=0.00123456, side_px=0.25),
    gate("reference-floor", reference_map=0.3951, scored_boxes=325),
    gate("map", native=0.39466, reference=0.3951, drop=0.0004),
    gate("map50", native=0.50737, reference=0.50717, drop=-0.0002),
    gate("identity", images=100, identical=100),
    gate("aiperf-errors", requests=55, errors=0),
    gate("aiperf-responses", verified=55, responses=55),
    gate("aiperf-joins", missing_or_double=0),
    gate("bundle-after", served=DIGEST, on_disk=DIGEST),
]


def good_row(**changes: Any) -> ModelRow:
    fields: dict[str, Any] = {
        "model": "good",
        "passed": True,
        "status": Status.AIPERF_QUALIFIED,
        "gates": GATES,
        "not_run": {},
        "checkpoint": "yolox-nano",
        "family": "yolox",
        "bundle_digest": DIGEST,
        "engine": "onnxruntime",
        "precision": "fp32",
        "settings": {"canvas": [416, 416], "threshold": 0.25},
        "dataset": DatasetIdentity(name="coco128-100", digest="d" * 64),
        "images": ImageSizes(
            count=100,
            bytes_min=41_200,
            bytes_median=150_600,
            bytes_max=320_400,
            height_range=(200, 640),
            width_range=(300, 640),
        ),
        "native": MeanAP(
            map=0.39466,
            map50=0.50737,
            reference_system_map=0.39466,
            reference_system_map50=0.50737,
            scored_boxes=325,
        ),
        "reference": MeanAP(
            map=0.3951,
            map50=0.50717,
            reference_system_map=0.3951,
            reference_system_map50=0.50717,
            scored_boxes=325,
        ),
        "performance": Performance(
            requests=50,
            client=times(15.83),
            images_per_s=60.174,
            handler=times(12.25),
            queue=times(1.75),
            task_call_wall=times(7.52),
            stages={"decode": times(2.125), "engine": times(3.5)},
            command=["aiperf", "profile"],
        ),
        "pictures": ["good/a.jpg"],
        "seconds": 42.5,
    }
    return ModelRow(**(fields | changes))


def failed_row(*judged: Gate) -> ModelRow:
    return ModelRow(
        model="bad",
        passed=False,
        status=Status.IMPLEMENTED,
        gates=[*judged],
        not_run=dict.fromkeys(
            ("dataset", "identity", "aiperf", "bundle-after"), "an earlier gate failed"
        ),
        reason="gate owning-case: a.jpg: 1 boxes",
        seconds=1.5,
    )


OWNING_FAILED = gate(
    "owning-case", False, "a.jpg: 1 boxes | the reference has 2", images=100, failed_images=3
)


def campaign(*rows: ModelRow) -> Results:
    return Results(
        run="run-1",
        started="2026-12-01T10:00:00+00:00",
        command="python scripts/qualify.py --models good,bad",
        expected=Status.AIPERF_QUALIFIED,
        passed=all(row.passed for row in rows),
        environment=Environment(
            python="3.11.7",
            packages={"ray": "2.60.0", "onnxruntime": "1.32.0"},
            platform="Linux 6 x86_64",
            cpu="Some CPU",
            cores=2,
            memory_gib=7.5,
            gpus=[],
            git_commit="abc123",
            git_diff_sha256="e" * 64,
        ),
        rows=list(rows),
    )


MIXED = campaign(good_row(), failed_row(GATES[0], OWNING_FAILED))


def table(text: str) -> list[list[str]]:
    """The rows of the first table, as cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    head = lines[: lines.index(next(line for line in lines if line.startswith("| gate ")))]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in head]


def test_the_first_table_has_the_figures_of_a_passed_and_of_a_failed_model() -> None:
    columns, _, good, bad = table(report.markdown(MIXED))
    assert columns == list(report.COLUMNS)
    assert dict(zip(columns, good, strict=True)) == {
        "model": "good",
        "status": "aiperf-qualified",
        "owning case": "pass",
        "mAP native / reference": "0.3947 / 0.3951 pass",
        "mAP50 native / reference": "0.5074 / 0.5072 pass",
        "native = HTTP": "100/100",
        "AIPerf verified": "55/55",
        "errors": "0",
        "missing joins": "0",
        "client p50 / p95 ms": "15.8 / 16.8",
        "Task p50 / p95 ms": "7.5 / 8.5",
        "images/s": "60.17",
    }
    assert bad == ["bad", "implemented", "FAIL", *["not run"] * 9]


@pytest.mark.parametrize(
    "text",
    [
        "# Qualification run-1: NOT every model passed",
        "Reproduce with `python scripts/qualify.py --models good,bad`.",
        "## good: aiperf-qualified",
        f"bundle `{DIGEST}`",
        "Dataset coco128-100: 100 images, digest `dddddddddddddddd`, 41 to 320 kB (median 151).",
        "| owning-case | pass | need owning-case | "
        "images 100, boxes 325, score 0.001235, side_px 0.25 |",
        "| client | 15.83 | 16.83 |",
        "| task_call_wall | 7.52 | 8.52 |",
        "| queue | 1.75 | 2.75 |",
        "| stage decode | 2.12 | 3.12 |",
        "![detections of good](good/a.jpg)",
        "## bad: implemented",
        "| owning-case | FAIL | need owning-case | images 100, failed_images 3 | "
        "a.jpg: 1 boxes \\| the reference has 2 |",
        "| dataset | not run |  |  | an earlier gate failed |",
        "Some CPU, 2 cores, 7.5 GiB, Linux 6 x86_64",
        "- GPUs: none",
        "Python 3.11.7; ray 2.60.0, onnxruntime 1.32.0",
        "commit abc123, with uncommitted changes",
    ],
)
def test_the_report_says(text: str) -> None:
    assert text in report.markdown(MIXED)


def test_a_campaign_that_passed_says_so() -> None:
    assert "# Qualification run-1: every model passed" in report.markdown(campaign(good_row()))


def test_the_text_table_has_the_verdict_the_figures_and_the_reason_of_each_failure() -> None:
    good, bad = report.text_table(MIXED).split("\n\n")
    assert good.splitlines()[0] == "PASS  good"
    figures = [line.split() for line in good.splitlines()[1:]]
    assert ["status", "aiperf-qualified"] in figures
    assert ["mAP", "native", "/", "reference", "0.3947", "/", "0.3951", "pass"] in figures
    assert ["AIPerf", "verified", "55/55"] in figures
    assert ["images/s", "60.17"] in figures
    assert len(figures) == len(report.COLUMNS) - 1
    assert bad.splitlines()[0] == "FAIL  bad"
    assert bad.splitlines()[-1] == (
        "  gate owning-case FAILED: a.jpg: 1 boxes | the reference has 2"
    )


def test_a_drop_that_is_too_large_is_marked_at_its_figure() -> None:
    dropped = gate("map", False, "passes at 0.1", native=0.3, reference=0.4, drop=0.1)
    rows = report.table_rows(campaign(failed_row(*GATES[:3], dropped, GATES[4])))
    assert rows[0][3] == "0.3000 / 0.4000 FAIL"
    assert rows[0][4] == "0.5074 / 0.5072 pass"


@pytest.mark.parametrize("stage", ["bundle", "owning-case", "identity"])
def test_a_stage_that_could_not_run_is_reported_and_measured_nothing(stage: str) -> None:
    """What campaign.py makes of an error: a gate of the stage's name with nothing measured."""
    broken = campaign(failed_row(gate(stage, False, "no dataset\nin two lines")))
    assert f"| {stage} | FAIL | need {stage} |  | no dataset in two lines |" in report.markdown(
        broken
    )
    assert f"gate {stage} FAILED: no dataset" in report.text_table(broken)


@pytest.mark.parametrize("row", [good_row(), failed_row(OWNING_FAILED), failed_row()])
def test_results_are_valid_by_their_schema_and_come_back_as_they_were(row: ModelRow) -> None:
    written = campaign(row).model_dump_json()
    schema = json.loads(json.dumps(results.schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(written))
    assert Results.model_validate_json(written) == campaign(row)


@pytest.mark.parametrize(
    "change",
    [
        {"passed": "perhaps"},
        {"schema_version": 3},
        {"note": "another field"},
        {"rows": [{"model": "m"}]},
    ],
)
def test_the_schema_refuses_what_is_no_result(change: dict[str, Any]) -> None:
    document = json.loads(campaign(good_row()).model_dump_json()) | change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(results.schema()).validate(document)


def test_every_field_of_a_row_that_needs_words_has_them() -> None:
    described = results.schema()["$defs"]["Performance"]["properties"]
    assert all("description" in field for field in described.values())
