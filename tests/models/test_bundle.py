"""Bundles: built once, whole or not at all, the same everywhere, and refused by name when changed.

All of it with the real yolox-nano, each test in a DETSERVE_HOME of its own.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models import bundle, catalogue
from models.bundle import Bundle, build_key, ensure
from models.catalogue import Checkpoint
from models.errors import BundleError, BundleMismatch, DetserveError, SourceError
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
        return ensure(catalogue.load("yolox-nano"), "onnxruntime", log=ignore)


@pytest.fixture
def copy(built: Bundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built.folder, tmp_path / "bundles" / "yolox-nano" / "copy"))


def ignore(message: str) -> None:
    """Progress is of interest to few of these tests."""


def folders() -> list[str]:
    """What lies beside the bundles of yolox-nano, locks left out."""
    inside = home() / "bundles" / "yolox-nano"
    return sorted(path.name for path in inside.iterdir() if path.suffix != ".lock")


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


def test_two_builds_in_two_homes_have_the_same_digest(
    built: Bundle, own_home: Path, checkpoint: Checkpoint
) -> None:
    again = ensure(checkpoint, "onnxruntime", log=ignore)
    assert again.folder != built.folder
    assert again.manifest == built.manifest
    for name in FILES:
        assert (again.folder / name).read_bytes() == (built.folder / name).read_bytes()


def test_nothing_in_the_manifest_says_where_or_when_it_was_built(built: Bundle) -> None:
    text = (built.folder / "bundle.json").read_text()
    assert str(built.folder.parent) not in text
    assert os.uname().nodename not in text


def test_a_bundle_that_is_there_is_not_built_again(own_home: Path, checkpoint: Checkpoint) -> None:
    said: list[str] = []
    first = ensure(checkpoint, "onnxruntime", log=said.append)
    times = [(first.folder / name).stat().st_mtime_ns for name in FILES]
    assert sum("building" in line for line in said) == 1
    second = ensure(checkpoint, "onnxruntime", log=said.append)
    assert sum("building" in line for line in said) == 1
    assert second == first
    assert [(first.folder / name).stat().st_mtime_ns for name in FILES] == times
    assert folders() == [first.folder.name]


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
            manifest_with(schema_version=2), BundleMismatch, "schema_version: ", id="a later schema"
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


def test_a_changed_bundle_is_refused_and_not_quietly_built_again(
    own_home: Path, built: Bundle, checkpoint: Checkpoint
) -> None:
    folder = home() / "bundles" / checkpoint.id / build_key(checkpoint, "onnxruntime")
    shutil.copytree(built.folder, folder)
    assert ensure(checkpoint, "onnxruntime", log=ignore).manifest == built.manifest
    flip_a_byte(folder)
    with pytest.raises(BundleMismatch, match="delete the bundle's folder to have it built again"):
        ensure(checkpoint, "onnxruntime", log=ignore)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BundleError("no"), OSError(28, "full")])
def test_a_build_that_is_stopped_leaves_no_folder_and_the_next_one_succeeds(
    own_home: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def stop(_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(bundle, "_try_out", stop)  # the last step before the folder appears
        with pytest.raises(type(error)):
            ensure(checkpoint, "onnxruntime", log=ignore)
    assert folders() == []
    assert ensure(checkpoint, "onnxruntime", log=ignore).folder.is_dir()


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"canvas": (640, 640)}, BundleError, "the checkpoint's graph takes"),
        ({"labels": ("a", "b")}, BundleError, "the checkpoint's graph takes"),
        ({"family": "yolov8"}, BundleError, "the checkpoint's graph takes"),
    ],
)
def test_a_checkpoint_that_is_not_what_the_catalogue_says_leaves_no_folder(
    own_home: Path,
    checkpoint: Checkpoint,
    change: dict[str, object],
    kind: type[DetserveError],
    sentence: str,
) -> None:
    with pytest.raises(kind, match=sentence):
        ensure(checkpoint.model_copy(update=change), "onnxruntime", log=ignore)
    assert folders() == []


def test_published_files_that_cannot_be_fetched_leave_no_folder(
    own_home: Path, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETSERVE_DATA", str(tmp_path / "nothing"))
    with pytest.raises(SourceError):
        ensure(checkpoint, "onnxruntime", log=ignore)
    assert folders() == []


def test_an_engine_that_returns_nan_is_not_bundled(
    own_home: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    infer = bundle.OnnxRuntimeEngine.infer

    def poisoned(self: bundle.OnnxRuntimeEngine, image: np.ndarray) -> dict[str, np.ndarray]:
        outputs = infer(self, image)
        outputs["scores"][0, 7] = np.nan
        return outputs

    monkeypatch.setattr(bundle.OnnxRuntimeEngine, "infer", poisoned)
    with pytest.raises(BundleError, match="yolox-nano: the engine returns NaN or infinity"):
        ensure(checkpoint, "onnxruntime", log=ignore)
    assert folders() == []


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": 0.3},
        {"labels": tuple("abc")},
        {"canvas": (640, 640)},
        {"family": "yolov8"},
        {"licence": "another"},
    ],
)
def test_a_change_of_what_a_bundle_holds_changes_its_folder(
    checkpoint: Checkpoint, change: dict[str, object]
) -> None:
    changed = checkpoint.model_copy(update=change)
    assert build_key(changed, "onnxruntime") != build_key(checkpoint, "onnxruntime")


def test_a_change_of_the_published_file_changes_the_bundle_s_folder(
    checkpoint: Checkpoint,
) -> None:
    source = checkpoint.source.model_copy(update={"files": {"yolox_nano.onnx": "0" * 64}})
    changed = checkpoint.model_copy(update={"source": source})
    assert build_key(changed, "onnxruntime") != build_key(checkpoint, "onnxruntime")


def test_a_change_of_the_family_s_code_or_of_a_library_changes_the_bundle_s_folder(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = build_key(checkpoint, "onnxruntime")
    (tmp_path / "code.py").write_text("# new")
    with monkeypatch.context() as patch:
        patch.setattr(bundle, "family_sources", lambda _: [tmp_path / "code.py"])
        assert build_key(checkpoint, "onnxruntime") != before
    with monkeypatch.context() as patch:
        patch.setattr(bundle, "engine_version", lambda _: "0.0.1")
        assert build_key(checkpoint, "onnxruntime") != before
    assert build_key(checkpoint, "onnxruntime") == before


def test_words_and_gates_of_the_catalogue_do_not_build_anew(checkpoint: Checkpoint) -> None:
    gates = checkpoint.gates.model_copy(update={"map_drop": 0.01})
    changed = checkpoint.model_copy(update={"title": "another", "gates": gates})
    assert build_key(changed, "onnxruntime") == build_key(checkpoint, "onnxruntime")


ENSURE = """
import sys
from models import bundle, catalogue
built = bundle.ensure(catalogue.load("yolox-nano"), "onnxruntime", log=print)
print("digest", built.manifest.digest)
"""


def test_two_processes_that_ask_at_once_build_once(own_home: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURE], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    lines = [line for output in outputs for line in output.splitlines()]
    assert sum("building" in line for line in lines) == 1
    assert len({line for line in lines if line.startswith("digest")}) == 1
    assert sum(line.startswith("digest") for line in lines) == 2
    assert len(folders()) == 1
