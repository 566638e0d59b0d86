"""What a serve_config.yaml is refused for before anything starts, each by one sentence."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.plan import read
from models.errors import ConfigError
from tests.conftest import PROJECT

Document = dict[str, Any]


def written(folder: Path, change: Callable[[Document], Any]) -> Path:
    document = yaml.safe_load((PROJECT / "serve_config.yaml").read_text())
    change(document)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    "path", [PROJECT / "serve_config.yaml", *sorted((PROJECT / "configs").glob("*.yaml"))]
)
def test_the_shipped_files_are_right(path: Path) -> None:
    plan = read(path)
    assert plan.models
    assert not plan.refused
    assert (plan.host, plan.port, plan.ingress) == ("127.0.0.1", 8000, "ingress")
    assert plan.initial("gpus") <= 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d.update(https={}), "https: unknown field; there are applications,"),
        (lambda d: d["http_options"].update(prot=1), "http_options.prot: unknown field; there are"),
        (
            lambda d: d["applications"][1].update(arguments={}),
            "applications.1.arguments: unknown field",
        ),
        (lambda d: d.pop("applications"), "applications: Field required"),
        (lambda d: d["http_options"].update(port="high"), "http_options.port: Input should be"),
        (lambda d: d["applications"].pop(0), "one application has the import_path"),
        (
            lambda d: d["applications"].append(
                copy.deepcopy(d["applications"][0]) | {"name": "two", "route_prefix": "/two"}
            ),
            "and here 2",
        ),
        (
            lambda d: d["applications"][0]["args"].update(deadline_s=120),
            "http_options.request_timeout_s is 120 and the ingress's deadline_s 120",
        ),
        (
            lambda d: d["applications"][0]["args"].update(paths={"/v1/page-elements": "absent"}),
            "/v1/page-elements is bound to absent, which is not in the file",
        ),
        (
            lambda d: d["applications"][0]["args"].update(max_image=3),
            "application ingress: .*max_image: unknown field",
        ),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_is_refused(
    tmp_path: Path, change: Callable[[Document], Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(written(tmp_path, change))


@pytest.mark.parametrize("content", ["a: [", "- 1", "", "3"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        read(path)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml cannot be read"):
        read(tmp_path / "absent.yaml")


def test_a_wrong_model_leaves_the_others(tmp_path: Path) -> None:
    def change(document: Document) -> None:
        right = document["applications"][1]
        wrong = [
            right | {"name": "wrong", "args": {"checkpoint": "yolox-nano", "treshold": 0.5}},
            right | {"name": "routed", "route_prefix": "/routed"},
            right | {"name": "foreign", "import_path": "elsewhere:build", "route_prefix": "/f"},
        ]
        document["applications"] += wrong

    plan = read(written(tmp_path, change))
    assert set(plan.models) == {"yolov8n-doclaynet"}
    assert set(plan.refused) == {"wrong", "routed"}
    assert "treshold: unknown field" in plan.refused["wrong"]
    assert "route_prefix: null" in plan.refused["routed"]


def test_what_the_replicas_need_is_added_up(tmp_path: Path) -> None:
    def change(document: Document) -> None:
        model = document["applications"][1]
        few = {"checkpoint": "yolox-nano", "resources": {"cpus": 0.1, "gpus": 0.1}}
        document["applications"] += [
            model | {"name": "three", "args": few | {"replicas": 3}},
            model
            | {
                "name": "many",
                "args": few | {"autoscaling": {"min_replicas": 0, "max_replicas": 7}},
            },
        ]

    plan = read(written(tmp_path, change))
    assert (plan.initial("cpus"), plan.initial("gpus")) == (1.4, 0.4)
    assert (plan.largest("cpus"), plan.largest("gpus")) == (2.0, 1.0)
