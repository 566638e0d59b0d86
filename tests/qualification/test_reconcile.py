"""Reconciliation: what is served is what is catalogued, asked for and listed, then and later."""

from typing import Any

import pytest

from models import catalogue
from qualification import reconcile

CHECKPOINT = catalogue.load("yolox-nano")
CONFIG: dict[str, Any] = {
    "checkpoint": "yolox-nano",
    "bundle": None,
    "engine": "auto",
    "precision": "auto",
    "threshold": None,
    "replicas": 2,
}
SERVED: dict[str, Any] = {
    "checkpoint": "yolox-nano",
    "family": "yolox",
    "engine": "onnxruntime",
    "precision": "fp32",
    "weights": "published",
    "licence": "Apache-2.0",
    "canvas": [416, 416],
    "labels": list(CHECKPOINT.labels),
    "threshold": 0.25,
    "bundle_digest": "d" * 64,
    "config": CONFIG,
}


def test_what_agrees_passes_and_states_what_is_served() -> None:
    gate = reconcile.reconciliation(CHECKPOINT, SERVED, SERVED | {"ready": True})
    assert gate.passed
    assert gate.measured == {
        "checkpoint": "yolox-nano",
        "engine": "onnxruntime",
        "precision": "fp32",
        "threshold": 0.25,
        "bundle_digest": "d" * 64,
    }


@pytest.mark.parametrize(
    ("served", "config"),
    [
        pytest.param({"threshold": 0.4}, {"threshold": 0.4}, id="a threshold of the config"),
        pytest.param({"threshold": 0.4}, {"bundle": "b", "checkpoint": None}, id="of a bundle"),
        pytest.param({}, {"engine": "onnxruntime", "precision": "fp32"}, id="an engine by name"),
    ],
)
def test_what_was_asked_for_passes(served: dict[str, Any], config: dict[str, Any]) -> None:
    described = SERVED | served | {"config": CONFIG | config}
    assert reconcile.reconciliation(CHECKPOINT, described, described).passed


@pytest.mark.parametrize(
    ("served", "config", "detail"),
    [
        ({"family": "yolov8"}, {}, "family is 'yolov8', the catalogue has 'yolox'"),
        ({"canvas": [640, 640]}, {}, "canvas is [640, 640], the catalogue has [416, 416]"),
        ({"weights": "random"}, {}, "weights is 'random', the catalogue has 'published'"),
        ({"threshold": 0.4}, {}, "threshold is 0.4, the config has 0.25"),
        ({}, {"threshold": 0.4}, "threshold is 0.25, the config has 0.4"),
        ({}, {"engine": "tensorrt"}, "engine is 'onnxruntime', the config has 'tensorrt'"),
        ({}, {"precision": "fp16"}, "precision is 'fp32', the config has 'fp16'"),
        ({}, {"checkpoint": "yolo11n"}, "checkpoint is 'yolox-nano', the config has 'yolo11n'"),
    ],
)
def test_what_is_not_catalogued_or_asked_for_fails(
    served: dict[str, Any], config: dict[str, Any], detail: str
) -> None:
    described = SERVED | served | {"config": CONFIG | config}
    gate = reconcile.reconciliation(CHECKPOINT, described, described)
    assert (gate.passed, gate.detail) == (False, detail)


@pytest.mark.parametrize("name", reconcile.SERVED)
def test_http_that_leads_to_another_model_fails(name: str) -> None:
    gate = reconcile.reconciliation(CHECKPOINT, SERVED, SERVED | {name: "another"})
    assert (gate.passed, gate.detail) == (False, f"{name} in /v1/models is not the replica's")


def test_a_model_that_is_not_listed_fails() -> None:
    gate = reconcile.reconciliation(CHECKPOINT, SERVED, None)
    assert (gate.passed, gate.detail) == (False, "/v1/models does not list it")


@pytest.mark.parametrize("name", reconcile.SERVED)
def test_what_changed_meanwhile_is_named(name: str) -> None:
    assert reconcile.unchanged(SERVED, SERVED | {"promoted": {"run": "r"}}).passed
    gate = reconcile.unchanged(SERVED, SERVED | {name: "another"})
    assert (gate.passed, gate.detail) == (False, f"{name} changed")
