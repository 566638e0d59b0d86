"""Bundles: built once, whole or not at all, the same everywhere, and refused by name when changed.

All of it with the real yolox-nano, each test in a DETSERVE_HOME of its own.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models import catalogue
from models.building import ensure
from models.bundle import Bundle
from models.catalogue import Checkpoint
from models.errors import BundleError, BundleMismatch, DetserveError
from models.home import home

ROOT = Path(__file__).resolve().parents[2]
FILES = ["bundle.json", "engine.onnx"]


@pytest.fixture
def checkpoint() -> Checkpoint:
    return catalogue.load("yolox-nano")


@pytest.fixture
def own_home(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def built(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """One build for the tests that only read it; those that change files copy it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DETSERVE_HOME", str(tmp_path_factory.mktemp("home")))
        return ensure(catalogue.load("yolox-nano"), "onnxruntime", "fp32", log=ignore)


@pytest.fixture
def copy(built: Bundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built.folder, tmp_path / "bundles" / "yolox-nano" / "copy"))


def ignore(message: str) -> None:
    """Progress is of interest to few of these tests."""


def folders() -> list[str]:
    """What lies beside the bundles of yolox-nano, locks left out."""
    inside = home() / "bundles" / "yolox-nano"
    return sorted(path.name for path in inside.iterdir() if path.suffix != ".lock")


def flip_a_byte(folder: Path) -> None:
    path = folder / "engine.onnx"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(folder: Path) -> None:
    path = folder / "engine.onnx"
    path.write_bytes(path.read_bytes()[:-1])


def manifest_with(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "bundle.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def swap_two_labels(folder: Path) -> None:
    path = folder / "bundle.json"
    document = json.loads(path.read_text())
    document["labels"][:2] = document["labels"][1::-1]
    path.write_text(json.dumps(document))


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def test_a_bundle_holds_an_engine_and_a_manifest_that_says_everything_about_it(
    built: Bundle, checkpoint: Checkpoint
) -> None:
    assert sorted(path.name for path in built.folder.iterdir()) == FILES
    manifest = built.manifest
    assert manifest.checkpoint == "yolox-nano"
    assert manifest.labels == checkpoint.labels
    assert manifest.canvas == (416, 416)
    assert manifest.threshold == checkpoint.threshold
    assert manifest.source == checkpoint.source.files
    assert list(manifest.files) == ["engine.onnx"]
    assert manifest.digest == manifest.computed_digest()
    assert len(manifest.digest) == 64
    assert set(manifest.built_with) == {"onnx", "onnxruntime"}


def test_a_bundle_runs_an_image_from_pixels_to_detections(built: Bundle) -> None:
    image = np.random.default_rng(0).integers(0, 256, (300, 500, 3), np.uint8)
    placed, canvas = built.place(image)
    assert canvas.shape == (1, 416, 416, 3)
    assert canvas.dtype == np.uint8
    found = built.decode(built.engine(threads=1).infer(canvas), placed, 0.01)
    assert (found.height, found.width) == (300, 500)


def test_nothing_in_the_manifest_says_where_or_when_it_was_built(built: Bundle) -> None:
    text = (built.folder / "bundle.json").read_text()
    assert str(built.folder.parent) not in text
    assert os.uname().nodename not in text


@pytest.mark.parametrize(
    ("damage", "kind", "sentence"),
    [
        pytest.param(
            flip_a_byte, BundleMismatch, "engine.onnx was changed after the build", id="one bit"
        ),
        pytest.param(
            truncate, BundleMismatch, "engine.onnx was changed after the build", id="one byte less"
        ),
        pytest.param(
            remove("engine.onnx"), BundleMismatch, "engine.onnx is missing", id="no engine"
        ),
        pytest.param(remove("bundle.json"), BundleError, "has no bundle.json", id="no manifest"),
        pytest.param(
            swap_two_labels, BundleMismatch, "bundle.json was changed after", id="labels swapped"
        ),
        pytest.param(
            manifest_with(threshold=0.2), BundleMismatch, "bundle.json was changed", id="threshold"
        ),
        pytest.param(
            manifest_with(digest="0" * 64), BundleMismatch, "bundle.json was changed", id="digest"
        ),
        pytest.param(
            manifest_with(note="x"),
            BundleMismatch,
            "bundle.json: note: unknown field",
            id="a field more",
        ),
        pytest.param(
            manifest_with(labels="person"), BundleMismatch, "bundle.json: labels: ", id="a type"
        ),
        pytest.param(
            manifest_with(schema_version=3), BundleMismatch, "schema_version: ", id="a later schema"
        ),
        pytest.param(
            lambda folder: (folder / "bundle.json").write_text("no JSON"),
            BundleMismatch,
            "bundle.json: the file: Invalid JSON",
            id="not JSON",
        ),
        pytest.param(
            lambda folder: (folder / "bundle.json").write_bytes(b""),
            BundleMismatch,
            "bundle.json: the file: Invalid JSON",
            id="an empty file",
        ),
        pytest.param(shutil.rmtree, BundleError, "has no bundle.json", id="no folder"),
    ],
)
def test_a_changed_bundle_is_refused_with_the_name_of_what_was_changed(
    copy: Path, damage: Callable[[Path], None], kind: type[DetserveError], sentence: str
) -> None:
    Bundle.open(copy)
    damage(copy)
    with pytest.raises(kind) as caught:
        Bundle.open(copy)
    assert sentence in str(caught.value)
    assert "yolox-nano/copy" in str(caught.value)
