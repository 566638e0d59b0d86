"""Building bundles: once, whole or not at all, the same everywhere, anew when anything changed.

All of it with the real yolox-nano, each test in a DETSERVE_HOME of its own.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from models import building, catalogue
from models.building import ensure, location
from models.bundle import Bundle
from models.catalogue import Checkpoint
from models.engines.onnxruntime_cpu import OnnxRuntimeEngine
from models.errors import BundleError, BundleMismatch, DetserveError, SourceError, SourceMismatch
from models.home import home
from models.sources import HuggingFaceSource

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


def test_two_builds_in_two_homes_have_the_same_digest(
    built: Bundle, own_home: Path, checkpoint: Checkpoint
) -> None:
    again = ensure(checkpoint, "onnxruntime", "fp32", log=ignore)
    assert again.folder != built.folder
    assert again.manifest == built.manifest
    for name in FILES:
        assert (again.folder / name).read_bytes() == (built.folder / name).read_bytes()


def test_a_bundle_that_is_there_is_not_built_again(own_home: Path, checkpoint: Checkpoint) -> None:
    said: list[str] = []
    first = ensure(checkpoint, "onnxruntime", "fp32", log=said.append)
    times = [(first.folder / name).stat().st_mtime_ns for name in FILES]
    assert sum("building" in line for line in said) == 1
    second = ensure(checkpoint, "onnxruntime", "fp32", log=said.append)
    assert sum("building" in line for line in said) == 1
    assert second == first
    assert [(first.folder / name).stat().st_mtime_ns for name in FILES] == times
    assert folders() == [first.folder.name]


def test_a_changed_bundle_is_refused_and_not_quietly_built_again(
    own_home: Path, built: Bundle, checkpoint: Checkpoint
) -> None:
    folder = location(checkpoint, "onnxruntime", "fp32")
    shutil.copytree(built.folder, folder)
    assert ensure(checkpoint, "onnxruntime", "fp32", log=ignore).manifest == built.manifest
    (folder / "engine.onnx").write_bytes(b"another")
    with pytest.raises(BundleMismatch, match="delete the bundle's folder to have it built again"):
        ensure(checkpoint, "onnxruntime", "fp32", log=ignore)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BundleError("no"), OSError(28, "full")])
def test_a_build_that_is_stopped_leaves_no_folder_and_the_next_one_succeeds(
    own_home: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def stop(_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(building, "_try_out", stop)  # the last step before the folder appears
        with pytest.raises(type(error)):
            ensure(checkpoint, "onnxruntime", "fp32", log=ignore)
    assert folders() == []
    assert ensure(checkpoint, "onnxruntime", "fp32", log=ignore).folder.is_dir()


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
        ensure(checkpoint.model_copy(update=change), "onnxruntime", "fp32", log=ignore)
    assert folders() == []


def test_published_files_that_cannot_be_fetched_leave_no_folder(
    own_home: Path, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETSERVE_DATA", str(tmp_path / "nothing"))
    with pytest.raises(SourceError):
        ensure(checkpoint, "onnxruntime", "fp32", log=ignore)
    assert folders() == []


def test_an_engine_that_returns_nan_is_not_bundled(
    own_home: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    infer = OnnxRuntimeEngine.infer

    def poisoned(
        self: OnnxRuntimeEngine, image: np.ndarray, slot: int = 0
    ) -> dict[str, np.ndarray]:
        outputs = infer(self, image, slot)
        outputs["scores"][0, 7] = np.nan
        return outputs

    monkeypatch.setattr(OnnxRuntimeEngine, "infer", poisoned)
    with pytest.raises(BundleError, match="yolox-nano: the engine returns NaN or infinity"):
        ensure(checkpoint, "onnxruntime", "fp32", log=ignore)
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
    assert location(changed, "onnxruntime", "fp32") != location(checkpoint, "onnxruntime", "fp32")


def test_a_change_of_the_published_file_changes_the_bundle_s_folder(
    checkpoint: Checkpoint,
) -> None:
    source = checkpoint.source.model_copy(update={"files": {"yolox_nano.onnx": "0" * 64}})
    changed = checkpoint.model_copy(update={"source": source})
    assert location(changed, "onnxruntime", "fp32") != location(checkpoint, "onnxruntime", "fp32")


def test_a_change_of_the_family_s_code_or_of_a_library_changes_the_bundle_s_folder(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = location(checkpoint, "onnxruntime", "fp32")
    (tmp_path / "code.py").write_text("# new")
    with monkeypatch.context() as patch:
        patch.setattr(building, "family_sources", lambda _: [tmp_path / "code.py"])
        assert location(checkpoint, "onnxruntime", "fp32") != before
    with monkeypatch.context() as patch:
        patch.setattr(building, "engine_version", lambda _: "0.0.1")
        assert location(checkpoint, "onnxruntime", "fp32") != before
    assert location(checkpoint, "onnxruntime", "fp32") == before


def test_words_gates_and_proofs_of_the_catalogue_do_not_build_anew(checkpoint: Checkpoint) -> None:
    gates = checkpoint.gates.model_copy(update={"map_drop": 0.01})
    proved = checkpoint.proved.model_copy(update={"note": "another"})
    changed = checkpoint.model_copy(
        update={"title": "another", "gates": gates, "proved": proved, "gaps": ("threshold",)}
    )
    assert location(changed, "onnxruntime", "fp32") == location(checkpoint, "onnxruntime", "fp32")


ENSURE = """
import sys
from models import building, catalogue
built = building.ensure(catalogue.load("yolox-nano"), "onnxruntime", "fp32", log=print)
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


def test_files_that_changed_in_the_cache_are_built_from_and_files_that_are_gone_are_not_missed(
    own_home: Path, checkpoint: Checkpoint, built: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = location(checkpoint, "onnxruntime", "fp32")
    shutil.copytree(built.folder, folder)
    with monkeypatch.context() as patch:
        patch.setattr(building, "digests", lambda *_: {"yolox_nano.onnx": "0" * 64})
        said: list[str] = []
        ensure(checkpoint, "onnxruntime", "fp32", log=said.append)
    assert "yolox-nano: its files are others than the bundle was built from" in said

    def gone(*_: object) -> dict[str, str]:
        raise SourceError("no sha256 is known")

    monkeypatch.setattr(building, "digests", gone)
    assert ensure(checkpoint, "onnxruntime", "fp32", log=ignore).folder == folder


def test_a_commit_that_changes_is_not_built_from_the_files_of_the_old_one(
    own_home: Path, checkpoint: Checkpoint, data: Path
) -> None:
    name = "yolox_nano.onnx"
    published = HuggingFaceSource(repo="a/b", revision="1" * 40, files={name: None})
    old = checkpoint.model_copy(update={"source": published})
    new = checkpoint.model_copy(
        update={"source": published.model_copy(update={"revision": "2" * 40})}
    )
    (own_home / "checkpoints" / checkpoint.id).mkdir(parents=True)
    shutil.copy(data / "checkpoints" / name, own_home / "checkpoints" / checkpoint.id / name)
    built = ensure(old, "onnxruntime", "fp32", log=ignore)
    with pytest.raises(SourceMismatch, match=f"the revision {'1' * 40}, and the"):
        ensure(new, "onnxruntime", "fp32", log=ignore)
    assert folders() == [built.folder.name]

    # files of the new one, and the catalogue set back: what was built from the old ones serves on
    (own_home / "checkpoints" / checkpoint.id / "REVISION").write_text("2" * 40 + "\n")
    said: list[str] = []
    assert ensure(old, "onnxruntime", "fp32", log=said.append).manifest == built.manifest
    assert said == []
