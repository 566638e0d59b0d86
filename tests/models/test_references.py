"""References in a process and an environment of their own, with real processes throughout.

Pipelines here are small files that need no torch; the published ones are in test_transformers.py
and test_ultralytics.py, and here in Pythons that cannot run them.
"""

import ast
import json
import os
import re
import select
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from models.errors import BundleError, DamagedImage, SourceError
from models.family import family, family_names, family_sources
from models.labels import COCO80, COCO91
from models.references import environment, process
from models.references.environment import reference_python
from models.references.process import ProcessReference

PROJECT = Path(__file__).resolve().parents[2]
GONE_S = 20  # far above what a process needs to end

# One box as large as the image's bytes are many; its score is the threshold.
ANSWERS = """
def load(settings):
    def detect(image, threshold):
        found = {"boxes": [[0, 0, len(image), 1]], "scores": [threshold], "class_ids": [1]}
        return found | {"height": 1, "width": len(image)}
    return settings["labels"], detect
"""

Pipeline = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETSERVE_REFERENCE_PYTHON", sys.executable)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline file with that source."""

    def write(source: str) -> Path:
        (tmp_path / "pipeline.py").write_text(source)
        return tmp_path / "pipeline.py"

    return write


@pytest.fixture(scope="module")
def empty_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with no package at all."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


@pytest.mark.parametrize(
    ("configured", "made", "expected"),
    [
        ("/opt/other/bin/python", True, "/opt/other/bin/python"),
        (None, True, "checkout/.venv-reference/bin/python"),
        ("", True, "checkout/.venv-reference/bin/python"),
        (None, False, sys.executable),
    ],
    ids=["named", "made beside the checkout", "named empty", "neither"],
)
def test_the_python_of_references_is_the_named_one_or_the_made_one_or_this_one(
    configured: str | None,
    made: bool,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if configured is None:
        monkeypatch.delenv("DETSERVE_REFERENCE_PYTHON")
    else:
        monkeypatch.setenv("DETSERVE_REFERENCE_PYTHON", configured)
    checkout = tmp_path / "checkout"
    if made:
        (checkout / ".venv-reference" / "bin").mkdir(parents=True)
        (checkout / ".venv-reference" / "bin" / "python").touch()
    module = checkout / "models" / "references" / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(module))
    assert reference_python() == tmp_path / expected  # an absolute one stays what it is


@pytest.mark.parametrize("published", [["cat", "dog"], None])
def test_a_reference_answers_image_after_image_with_the_published_labels_where_there_are_any(
    published: list[str] | None, pipeline: Pipeline
) -> None:
    reference = ProcessReference(pipeline(ANSWERS), {"labels": published}, ["from", "catalogue"])
    assert reference.labels == (published or ["from", "catalogue"])
    for size in (1, 7, 200_000):  # the last above what a pipe holds
        found = reference(b"x" * size, 0.25)
        assert found.boxes.tolist() == [[0, 0, size, 1]]
        assert (found.scores.tolist(), found.class_ids.tolist()) == ([0.25], [1])
        assert (found.height, found.width) == (1, size)


def test_what_a_library_prints_is_no_answer(pipeline: Pipeline) -> None:
    noisy = "import os\nprint('loaded')\nos.write(1, b'from C\\n')\n" + ANSWERS
    reference = ProcessReference(pipeline(noisy), {"labels": None}, ["cat", "dog"])
    assert len(reference(b"12", 0.5)) == 1


def test_nothing_of_the_serving_environment_reaches_the_reference(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served"
    (served / "models").mkdir(parents=True)
    (served / "served_only.py").touch()
    (served / "models" / "__init__.py").write_text("raise RuntimeError('another models')")
    monkeypatch.setenv("PYTHONPATH", str(served))
    monkeypatch.chdir(served)
    with pytest.raises(BundleError, match="No module named 'served_only'"):
        ProcessReference(pipeline("import served_only\n" + ANSWERS), {"labels": None}, [])


@pytest.mark.parametrize(
    ("of", "file", "missing"),
    [("yolov8", "yolov8n.pt", "cv2|numpy"), ("detr", "config.json", "numpy|PIL")],
)
def test_a_python_without_the_publishers_packages_is_one_sentence_that_names_the_command(
    of: str,
    file: str,
    missing: str,
    empty_python: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {index: re.sub("N/A.*", "N/A", name) for index, name in enumerate(COCO91)}
    (tmp_path / file).write_text(json.dumps({"model_type": "detr", "id2label": names}))
    files = {name: tmp_path / name for name in (file, "model.safetensors")[: 2 - (of != "detr")]}
    monkeypatch.setenv("DETSERVE_REFERENCE_PYTHON", str(empty_python))
    canvas, labels = (None, COCO91) if of == "detr" else ((640, 640), COCO80)
    with pytest.raises(BundleError) as raised:
        family(of).reference(files, canvas, labels)
    assert re.fullmatch(
        rf"the reference cannot run in {empty_python}: No module named '({missing})'; `make "
        rf"reference-env` makes an environment that can, .*",
        str(raised.value),
    )


def test_a_python_that_is_not_there_is_one_sentence_that_names_the_command(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETSERVE_REFERENCE_PYTHON", "/nowhere/python")
    sentence = r"cannot run in /nowhere/python: No such file or directory; `make reference-env`"
    with pytest.raises(BundleError, match=sentence):
        ProcessReference(pipeline(ANSWERS), {"labels": None}, [])


def test_files_that_the_pipeline_refuses_are_the_error_they_are_here(pipeline: Pipeline) -> None:
    source = "from models.errors import SourceError\ndef load(_): raise SourceError('damaged')"
    with pytest.raises(SourceError, match=r"^damaged$"):
        ProcessReference(pipeline(source), {}, [])


@pytest.mark.parametrize(
    ("dying", "sentence"),
    [
        ("os.write(2, b'first\\nno memory\\n'); os._exit(3)", "ended with 3: no memory$"),
        ("raise RuntimeError('a shape')", "ended with 1: RuntimeError: a shape$"),
        ("os.kill(os.getpid(), 9)", "ended with -9: it said nothing$"),
    ],
    ids=["ends", "raises", "is killed"],
)
def test_a_process_that_dies_midway_is_one_sentence_and_stays_one(
    dying: str, sentence: str, pipeline: Pipeline
) -> None:
    source = ANSWERS.replace("    def detect", "    import os\n    def detect")
    check = f"if len(image) == 3:\n            {dying}\n        found ="
    source = source.replace("found =", check)
    reference = ProcessReference(pipeline(source), {"labels": None}, ["cat", "dog"])
    assert len(reference(b"12", 0.5)) == 1
    for _ in range(2):
        with pytest.raises(BundleError, match=sentence):
            reference(b"123", 0.5)


@pytest.mark.parametrize(
    ("module", "name"),
    [("models.references.transformers_pipeline", "upright"), ("models.opencv", "read_bgr")],
)
def test_an_image_that_the_publishers_decoder_refuses_is_a_damaged_one_and_the_next_goes_on(
    module: str, name: str, pipeline: Pipeline, data: Path
) -> None:
    decoding = ANSWERS.replace("found =", f"{name}(image); found =")
    source = f"from {module} import {name}\n{decoding}"
    reference = ProcessReference(pipeline(source), {"labels": None}, ["cat", "dog"])
    whole = next((data / "coco128" / "images").glob("*.jpg")).read_bytes()
    for damaged in (b"no image", b"", whole[:100]):
        with pytest.raises(DamagedImage, match="cannot decode the image"):
            reference(damaged, 0.5)
        assert len(reference(whole, 0.5)) == 1


def gone(pid: int) -> Callable[[], bool]:
    """Opened while the process lives: says whether it has ended, waiting for it."""
    handle = os.pidfd_open(pid)
    return lambda: bool(select.select([handle], [], [], GONE_S)[0])


def test_the_process_ends_with_its_reference(pipeline: Pipeline) -> None:
    reference = ProcessReference(pipeline(ANSWERS), {"labels": None}, [])
    ended = gone(reference._process.pid)
    del reference
    assert ended()


def test_a_process_that_does_not_leave_is_ended(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LEAVING_S", 0.1)
    waits = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    reference = ProcessReference(pipeline(waits + ANSWERS), {"labels": None}, [])
    ended = gone(reference._process.pid)
    del reference
    assert ended()


def test_the_process_ends_when_the_one_that_asked_is_killed(pipeline: Pipeline) -> None:
    holder = f"""if True:
        import sys
        from pathlib import Path
        from models.references.process import ProcessReference
        reference = ProcessReference(Path({str(pipeline(ANSWERS))!r}), {{"labels": None}}, [])
        print(reference._process.pid, flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", holder]
    with subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as asking:
        assert asking.stdout is not None
        ended = gone(int(asking.stdout.readline()))
        asking.kill()
        assert ended()


@pytest.mark.parametrize("name", family_names())
def test_no_reference_is_among_what_a_bundle_is_built_from(name: str) -> None:
    sources = {str(path.relative_to(PROJECT / "models")) for path in family_sources(name)}
    assert f"families/{name}/__init__.py" in sources
    assert [each for each in sources if "reference" in each] == []


def test_only_a_familys_reference_imports_what_judges_it() -> None:
    """Else code that is not in the key could change a bundle."""
    importing = set()
    for path in (PROJECT / "models").rglob("*.py"):
        if "reference" in str(path.relative_to(PROJECT)):
            continue
        tree = ast.parse(path.read_bytes())
        judging = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name == "reference"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and "reference" in str(node.module):
                importing.add(path.name)
                assert id(node) in judging, f"{path}:{node.lineno}"
    assert importing  # the rule has something to hold


def test_the_environments_versions_are_pinned_and_those_of_serving_and_exporting() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (PROJECT / name).read_text().splitlines()
        kept = [line for line in lines if line and not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in kept)
        return {key.lower(): version for key, _, version in (line.partition("==") for line in kept)}

    ours, serving = pins("requirements-reference.txt"), pins("constraints.txt")
    assert {key: serving[key] for key in ours if key in serving} == {
        key: version for key, version in ours.items() if key in serving
    }
    assert {"numpy", "pillow", "opencv-python-headless"} < set(ours) & set(serving)
    extra = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]["export"]
    assert {f"{key}=={ours[key]}" for key in ("torch", "transformers")} < set(extra)
