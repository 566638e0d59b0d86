"""The README's own commands and examples, run as they stand."""

import json
import re
import subprocess
from typing import Any

import pytest
import yaml

from deployments.config import ModelArgs, parse
from models import catalogue
from tests.conftest import PROJECT

README = (PROJECT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def _rounded(answer: dict[str, Any], labels: tuple[str, ...]) -> dict[str, Any]:
    """The answer as the README shows it: two labels, four digits."""
    (item,) = answer["data"]
    boxes = {
        label: [
            {key: round(value, 4) for key, value in box.items()}
            for box in item["bounding_boxes"][label]
        ]
        for label in labels
    }
    usage = {"images_size_mb": round(answer["usage"]["images_size_mb"], 4)}
    return {**answer, "data": [{**item, "bounding_boxes": boxes}], "usage": usage}


def test_commands_are_targets_of_the_makefile() -> None:
    listed = subprocess.run(["make", "help"], cwd=PROJECT, capture_output=True, text=True).stdout
    commands = [block.split() for block in _blocks("bash") if block.startswith("make ")]
    assert [command[1] for command in commands] == ["qualify", "test", "serve"]
    assert all(f"make {command[1]} " in listed for command in commands)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (PROJECT / ".ci" / "run").read_text().splitlines()


def test_the_yaml_example_is_a_model() -> None:
    (block,) = _blocks("yaml")
    (application,) = yaml.safe_load(block)
    args = parse(ModelArgs, application["args"])
    assert catalogue.load(str(args.checkpoint)).id == "yolov8n-doclaynet"


def test_linked_files_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (PROJECT / link).exists(), link


@pytest.mark.slow
def test_the_curl_example_finds_the_parts_of_the_example_page(application) -> None:
    scaled = {"autoscaling": {"min_replicas": 1, "max_replicas": 2}}
    application.deploy({"yolov8n-doclaynet": {"checkpoint": "yolov8n-doclaynet", **scaled}})
    (block,) = (block for block in _blocks("bash") if "/v1/infer" in block)
    done = subprocess.run(
        ["bash", "-c", block.replace(":8000", f":{application.port}")],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (item,) = answer["data"]
    assert {"Table", "Picture", "Text"} <= item["bounding_boxes"].keys()
    (shown,) = (json.loads(block) for block in _blocks("json"))
    assert shown == _rounded(answer, ("Picture", "Table"))
    application.remove("yolov8n-doclaynet")
