"""scripts/build.py as a user runs it, with yolox-nano: no server, no torch."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from models import catalogue, home

NAME = "nano-from-elsewhere"


@pytest.fixture
def own_home(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty DETSERVE_HOME whose catalogue has yolox-nano as a checkpoint to be fetched."""
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path / "home"))
    entry = yaml.safe_load((catalogue.FOLDER / "yolox-nano.yaml").read_text())
    repository = {"type": "huggingface", "repo": "nobody/nano", "revision": "0" * 40}
    source = repository | {"files": entry["source"]["files"]}
    (tmp_path / "home" / "catalogue").mkdir(parents=True)
    entry |= {"id": NAME, "source": source, "dataset": entry["dataset"] | {"images": 8}}
    (tmp_path / "home" / "catalogue" / f"{NAME}.yaml").write_text(yaml.safe_dump(entry))
    return tmp_path / "home"


@pytest.fixture
def published(own_home: Path, tmp_path: Path) -> Path:
    """A directory with the published file and others."""
    source = catalogue.load("yolox-nano").source
    folder = tmp_path / "published"
    folder.mkdir()
    for name in source.files:
        shutil.copy(home.data() / source.folder / name, folder)
    (folder / "README.md").write_text("not asked for")
    return folder


def test_a_directory_is_taken_built_and_judged_and_a_second_time_nothing_is_done(
    run_script, published: Path
) -> None:
    first = run_script("build.py", NAME, "--from", published, "--json")
    assert first.returncode == 0, first.stderr
    (row,) = json.loads(first.stdout)
    assert row["problem"] is None
    assert (row["engine"], row["precision"]) == ("onnxruntime", "fp32")
    assert row["verified"]["images"] == 8
    assert row["verified"]["boxes"] > 8
    assert f"{NAME}: right on 8 images" in first.stderr
    assert "licence: Apache-2.0" in first.stderr

    second = run_script("build.py", NAME, "--json")
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout) == [row]
    assert "building" not in second.stderr
    assert "judging" not in second.stderr


def test_an_fp16_bundle_is_another_bundle(run_script, published: Path) -> None:
    arguments = ("--from", published, "--json", "--no-verify")
    single = run_script("build.py", NAME, *arguments)
    half = run_script("build.py", NAME, *arguments, "--precision", "fp16")
    assert "build: 1 of 1 built, none judged" in half.stderr
    (one,), (other,) = json.loads(single.stdout), json.loads(half.stdout)
    assert other["precision"] == "fp16"
    assert other["digest"] != one["digest"]
    assert other["mb"] < 0.6 * one["mb"]


def test_a_file_with_other_bytes_than_the_pinned_ones_is_refused(
    run_script, published: Path
) -> None:
    (name,) = catalogue.load("yolox-nano").source.files
    (published / name).write_bytes((published / name).read_bytes()[:-1])
    done = run_script("build.py", NAME, "--from", published)
    assert done.returncode == 1
    assert "not the pinned" in done.stderr
    assert f"0 of 1 right, not {NAME}" in done.stderr


def test_files_that_are_no_such_checkpoint_are_not_kept_in_the_way_of_the_right_ones(
    run_script, own_home: Path, published: Path
) -> None:
    """Where nothing is pinned, the first files to come are those that are checked ever after."""
    path = own_home / "catalogue" / f"{NAME}.yaml"
    entry = yaml.safe_load(path.read_text())
    (name,) = entry["source"]["files"]
    entry["source"]["files"][name] = None
    entry["proved"]["status"] = "implemented"
    path.write_text(yaml.safe_dump(entry))
    right = (published / name).read_bytes()
    (published / name).write_bytes(b"another checkpoint")
    wrong = run_script("build.py", NAME, "--from", published)
    assert wrong.returncode == 1
    assert f"{name} is not an ONNX file" in wrong.stderr
    (published / name).write_bytes(right)
    done = run_script("build.py", NAME, "--from", published)
    assert done.returncode == 0, done.stderr
    # what was right is what later ones must be
    (published / name).write_bytes(right + b"more")
    assert (
        "from when the file first arrived"
        in run_script("build.py", NAME, "--from", published).stderr
    )


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param(["no-such"], 1, "no checkpoint 'no-such' in the catalogue", id="unknown"),
        pytest.param(["a", "b", "--from", "."], 2, "--from takes the files of one", id="two"),
        pytest.param([], 2, "one of the arguments", id="none"),
        pytest.param([NAME, "--from", "/nowhere"], 1, "there is no such directory", id="absent"),
        pytest.param(["yolox-nano", "--from", "."], 1, "are used where they lie", id="local"),
    ],
)
def test_a_mistake_is_one_sentence(run_script, own_home, arguments, code, sentence) -> None:
    done = run_script("build.py", *arguments)
    assert done.returncode == code
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_the_ten_are_listed(run_script, own_home: Path) -> None:
    done = run_script("build.py", "--list")
    assert {"yolov5n", "yolov8n", "yolov10n", "yolov10s", "yolov10x", "yolo11n"} <= set(
        done.stdout.split()
    )
    assert {"detr-resnet-50", "yolos-small", "rtdetr-r50vd", "deformable-detr"} <= set(
        done.stdout.split()
    )
