"""scripts/check_config.py as a user runs it: on files alone, and beside a live application."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import PROJECT, Application

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_the_shipped_file_is_told_and_accepted(run_script: Run) -> None:
    done = run_script("check_config.py", PROJECT / "serve_config.yaml")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "http://127.0.0.1:8000"
    assert lines[1].startswith("yolov8n-doclaynet: yolov8n-doclaynet in fp32 by onnxruntime, ")
    assert lines[1].endswith("replicas: 1, each 1 CPU")
    assert lines[2] == f"cpus: 1 at first, 1 at most, {os.cpu_count()} here"


def test_each_model_that_cannot_be_served_is_named(run_script: Run, tmp_path: Path) -> None:
    args = {
        "misspelt": {"checkpoint": "yolox-nanno"},
        "unknown-field": {"checkpoint": "yolox-nano", "colour": 1},
        "no-bundle": {"bundle": "yolox-nano/absent"},
        "right": {"checkpoint": "yolox-nano"},
    }
    done = run_script("check_config.py", edited(tmp_path, args))
    assert done.returncode == 1
    refused = {
        line.partition(":")[0]: line for line in done.stdout.splitlines() if "REFUSED" in line
    }
    assert set(refused) == {"misspelt", "unknown-field", "no-bundle"}
    assert "yolox-nanno" in refused["misspelt"]
    assert "colour: unknown field" in refused["unknown-field"]
    assert "absent" in refused["no-bundle"]
    assert str(tmp_path) not in done.stdout


def test_models_that_ask_for_too_much_are_told(run_script: Run, tmp_path: Path) -> None:
    args = {"greedy": {"checkpoint": "yolox-nano", "resources": {"cpus": 1000}}}
    done = run_script("check_config.py", edited(tmp_path, args))
    assert done.returncode == 1
    assert "cpus: 1001 at first, 1001 at most" in done.stdout
    assert "TOO FEW" in done.stdout


def test_a_file_that_is_none_and_a_server_that_is_none_are_said(
    run_script: Run, tmp_path: Path
) -> None:
    done = run_script("check_config.py", tmp_path / "absent.yaml")
    assert done.returncode == 1
    assert done.stderr.startswith("check_config: absent.yaml cannot be read")
    done = run_script(
        "check_config.py", PROJECT / "serve_config.yaml", "--url", "http://127.0.0.1:9"
    )
    assert done.returncode == 1
    assert done.stderr.startswith("check_config: nothing answers at http://127.0.0.1:9")


@pytest.mark.slow
def test_what_a_deploy_would_change_is_told(
    run_script: Run, application: Application, tmp_path: Path
) -> None:
    args = {
        "yolox-nano": {"checkpoint": "yolox-nano", "threshold": 0.9},
        "new": {"checkpoint": "yolox-nano", "resources": {"cpus": 0.1}},
        "yolov8n-coco": {"checkpoint": "yolov8n-coco"},
    }
    path = edited(tmp_path, args, without=("yolov8n-doclaynet", "yolov8n-coco"))
    done = run_script("check_config.py", path, "--url", application.url)
    assert done.stdout.splitlines()[-3:] == [
        "serve deploy adds new",
        "serve deploy removes yolov8n-coco",
        "serve deploy replaces, for another threshold, yolox-nano",
    ]
    unchanged = run_script(
        "check_config.py", application.folder / "serve_config.yaml", "--url", application.url
    )
    assert "serve deploy leaves yolox-nano" in unchanged.stdout


def edited(folder: Path, args: dict[str, dict[str, Any]], without: tuple[str, ...] = ()) -> Path:
    """The shipped file with these models too, less those in `without`."""
    document = yaml.safe_load((PROJECT / "serve_config.yaml").read_text())
    example = document["applications"][1]
    document["applications"] += [example | {"name": name, "args": args[name]} for name in args]
    document["applications"] = [
        each for each in document["applications"] if each["name"] not in without
    ]
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path
