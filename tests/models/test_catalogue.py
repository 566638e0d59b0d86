"""The catalogue: every file of it loads, and a mistake is answered with the field's path."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from models import catalogue
from models.errors import CatalogueError
from models.family import family
from models.labels import COCO80
from models.status import Status

SHIPPED = sorted(path.stem for path in catalogue.FOLDER.glob("*.yaml"))

VALID: dict[str, Any] = {
    "id": "mine",
    "title": "Two things",
    "family": "yolov8",
    "source": {"type": "local", "folder": "mine", "files": {"mine.onnx": "0" * 64}},
    "licence": "MIT",
    "canvas": [320, 640],
    "precision": "fp32",
    "labels": ["cat", "dog"],
    "threshold": 0.25,
    "dataset": {"type": "coco", "folder": "mine", "labels": {"cat": "feline"}},
    "gates": {"map_drop": 0.02, "reference_floor": 0.3},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """DETSERVE_HOME/catalogue, where people put files of their own."""
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path))
    (tmp_path / "catalogue").mkdir()
    return tmp_path / "catalogue"


def write(folder: Path, document: Any) -> None:
    (folder / "mine.yaml").write_text(
        document if isinstance(document, str) else yaml.safe_dump(document)
    )


def changed(path: str, value: Any) -> dict[str, Any]:
    """VALID with one field set; `...` takes it out."""
    document = yaml.safe_load(yaml.safe_dump(VALID))
    *parents, name = path.split(".")
    inside = document
    for parent in parents:
        inside = inside[parent]
    if value is ...:
        del inside[name]
    else:
        inside[name] = value
    return document


def test_the_catalogue_ships_the_default_model_and_both_coco_models() -> None:
    assert {"yolov8n-doclaynet", "yolov8n-coco", "yolox-nano"} <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_file_of_the_catalogue_loads(name: str) -> None:
    checkpoint = catalogue.load(name)
    assert checkpoint.id == name
    assert checkpoint.licence
    digests = checkpoint.source.files.values()
    if checkpoint.source.type == "huggingface":  # a commit may stand for digests not known yet
        digests = [digest for digest in digests if digest is not None]
    assert all(len(digest) == 64 for digest in digests)
    assert family(checkpoint.family).criteria.bounds()
    assert checkpoint.gates.map_drop <= 0.02  # DESIGN section 4.3
    assert checkpoint.gates.reference_floor > 0


def test_the_name_of_a_label_set_stands_for_its_labels(folder: Path) -> None:
    write(folder, changed("labels", "coco80"))
    assert catalogue.load("mine").labels == COCO80
    assert len(COCO80) == 80
    assert COCO80[:3] == ("person", "bicycle", "car")
    assert COCO80[-1] == "toothbrush"


def test_a_file_in_the_home_folder_is_found_beside_those_that_ship(folder: Path) -> None:
    assert catalogue.known() == SHIPPED
    write(folder, VALID)
    assert catalogue.known() == sorted([*SHIPPED, "mine"])
    checkpoint = catalogue.load("mine")
    assert checkpoint.canvas == (320, 640)
    assert checkpoint.labels == ("cat", "dog")
    assert checkpoint.dataset.labels == {"cat": "feline"}


def test_an_unknown_checkpoint_is_answered_with_those_there_are() -> None:
    with pytest.raises(CatalogueError, match=r"no checkpoint 'yolo99' .* yolov8n-coco"):
        catalogue.load("yolo99")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        pytest.param("colour", "red", "colour: unknown field", id="unknown field"),
        pytest.param("gates.colour", "red", "gates.colour: unknown field", id="unknown inside"),
        pytest.param("dataset.split", 1, "dataset.coco.split: unknown field", id="unknown deep"),
        pytest.param(
            "source.colour", "red", "source.local.colour: unknown field", id="unknown in source"
        ),
        pytest.param("licence", ..., "licence: Field required", id="missing field"),
        pytest.param("gates", ..., "gates: Field required", id="missing gates"),
        pytest.param("gates.map_drop", ..., "gates.map_drop: Field required", id="missing inside"),
        pytest.param("source.files", ..., "source.local.files: Field required", id="no files"),
        pytest.param(
            "source.files", {"m": None}, "source.local.files.m: Input should be", id="no digest"
        ),
        pytest.param("family", "yolo9000", "family: no 'yolo9000'; there are", id="bad family"),
        pytest.param("family", "../yolox", "family: no '../yolox'", id="a path for a family"),
        pytest.param("labels", ["cat", "cat"], "labels: a label stands twice", id="twice"),
        pytest.param("labels", "coco81", "labels: no set 'coco81'; there are", id="unknown set"),
        pytest.param("labels", [], "labels: Tuple should have at least 1", id="no labels"),
        pytest.param("labels", ["cat", True], "labels.1: Input should be a", id="yes for a label"),
        pytest.param("labels", {0: "cat"}, "labels: Input should be a valid tuple", id="a mapping"),
        pytest.param("canvas", [320], "canvas.1: Field required", id="one side"),
        pytest.param("canvas", [320, 0], "canvas.1: Input should be greater", id="an empty side"),
        pytest.param("canvas", "640", "canvas: Input should be a valid tuple", id="a text"),
        pytest.param("threshold", "high", "threshold: Input should be a valid number", id="a word"),
        pytest.param("threshold", 1.5, "threshold: Input should be less than", id="out of range"),
        pytest.param("threshold", None, "threshold: Input should be a valid", id="null"),
        pytest.param(
            "precision", "fp8", "precision: Input should be 'fp16' or 'fp32'", id="precision"
        ),
        pytest.param("dataset.type", "voc", "dataset: Input tag 'voc'", id="unknown dataset"),
        pytest.param("gates.reference_floor", 0, "gates.reference_floor: Input", id="no floor"),
        pytest.param("proved", {"status": "planned"}, "proved.note: Field required", id="no note"),
        pytest.param(
            "proved", {"status": "good", "note": "n"}, "proved.status: Input should be", id="status"
        ),
        pytest.param("gaps", ["colour"], "gaps.0: Value error, no gap 'colour'; there", id="gap"),
        pytest.param("gaps", ["tensorrt"] * 2, "gaps: a gap stands twice", id="a gap twice"),
        pytest.param("source.type", "ftp", "source: Input tag 'ftp'", id="unknown source"),
        pytest.param("id", "Mine", "id: String should match pattern", id="a capital"),
        pytest.param("id", "other", "id: must be the file's name, 'mine'", id="another name"),
    ],
)
def test_a_mistake_is_answered_with_the_file_and_the_field_s_path(
    folder: Path, path: str, value: Any, sentence: str
) -> None:
    write(folder, changed(path, value))
    with pytest.raises(CatalogueError) as caught:
        catalogue.load("mine")
    assert str(caught.value).startswith("mine.yaml: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


RANDOM = "proved.status: random weights reach implemented at most"
UNPINNED = {
    "type": "huggingface",
    "repo": "mine/mine",
    "revision": "0" * 40,
    "files": {"mine.onnx": None},
}


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param({}, None, id="published weights"),
        pytest.param({"gaps": ["tensorrt"]}, None, id="another gap"),
        pytest.param({"weights": "random"}, RANDOM, id="random weights"),
        pytest.param({"gaps": ["weights"]}, RANDOM, id="no published weights"),
        pytest.param({"source": UNPINNED}, "proved.status: above implemented,", id="any bytes"),
    ],
)
def test_a_status_above_implemented_is_of_published_weights_with_known_digests(
    folder: Path, status: Status, change: dict[str, Any], sentence: str | None
) -> None:
    write(folder, VALID | change | {"proved": {"status": status.value, "note": "seen"}})
    if sentence is None or status in (Status.PLANNED, Status.IMPLEMENTED):
        assert catalogue.load("mine").proved.status is status
    else:
        with pytest.raises(CatalogueError, match=rf"^mine\.yaml: .*{sentence}"):
            catalogue.load("mine")


def test_a_file_that_states_no_status_is_of_a_planned_checkpoint(folder: Path) -> None:
    write(folder, VALID)
    checkpoint = catalogue.load("mine")
    assert checkpoint.proved.status is Status.PLANNED
    assert checkpoint.gaps == ()
    assert catalogue.shipped() == SHIPPED


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("- a list", id="a list"),
        pytest.param("labels: [unclosed", id="not YAML"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused_in_one_line(folder: Path, text: str) -> None:
    write(folder, text)
    with pytest.raises(CatalogueError, match=r"^mine\.yaml: .+$"):
        catalogue.load("mine")


def test_code_in_a_file_is_refused_and_not_run(folder: Path) -> None:
    write(folder, f"!!python/object/apply:os.mkdir ['{folder / 'made'}']")
    with pytest.raises(CatalogueError, match=r"^mine\.yaml: could not determine a constructor"):
        catalogue.load("mine")
    assert not (folder / "made").exists()


def test_a_file_that_is_no_text_is_refused(folder: Path) -> None:
    (folder / "mine.yaml").write_bytes(b"id: \xff\xfe")
    with pytest.raises(CatalogueError, match=r"^mine\.yaml: "):
        catalogue.load("mine")


def test_every_mistake_of_a_file_is_named_at_once(folder: Path) -> None:
    document = changed("threshold", 2) | {"colour": "red"}
    del document["title"]
    write(folder, document)
    with pytest.raises(CatalogueError) as caught:
        catalogue.load("mine")
    for field in ("threshold: ", "colour: ", "title: "):
        assert field in str(caught.value)


def test_a_file_of_the_user_may_not_take_a_shipped_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path))
    (tmp_path / "catalogue").mkdir()
    shipped = catalogue.FOLDER / "yolox-nano.yaml"
    (tmp_path / "catalogue" / shipped.name).write_bytes(shipped.read_bytes())
    with pytest.raises(CatalogueError, match="shipped"):
        catalogue.load("yolox-nano")
