"""The README's own commands and examples, run as they stand."""

import json
import re
import subprocess

import pytest
import yaml

from deployments.config import ModelArgs, parse
from models import catalogue
from tests.conftest import PROJECT

README = (PROJECT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


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
    assert catalogue.load(str(args.checkpoint)).id == "yolox-nano"


def test_linked_files_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (PROJECT / link).exists(), link


@pytest.mark.slow
def test_the_curl_example_finds_the_parts_of_the_example_page(application) -> None:
    application.deploy({"yolov8n-doclaynet": {"checkpoint": "yolov8n-doclaynet"}})
    (block,) = (block for block in _blocks("bash") if "/v1/infer" in block)
    done = subprocess.run(
        ["bash", "-c", block.replace(":8000", f":{application.port}")],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (item,) = json.loads(done.stdout)["data"]
    assert {"Table", "Picture", "Text"} <= item["bounding_boxes"].keys()
    application.remove("yolov8n-doclaynet")
