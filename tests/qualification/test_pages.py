"""The drawn pages: the same in every process, boxes exactly where the ink is, written whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from qualification.datasets import coco, pages, sheet

ROOT = Path(__file__).parents[2]
FINGERPRINTS = """
import hashlib, sys
from qualification.datasets.pages import draw_page
for index in sys.argv[1:]:
    page = draw_page(int(index))
    print(hashlib.sha256(page.image.tobytes() + repr(page.boxes).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def drawn() -> list[pages.Page]:
    indexes = (*range(20), 73)  # on 73 a caption ends at the last pixel of its column
    return [pages.draw_page(index) for index in indexes]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets") / "pages"
    pages.write(folder, count=5)
    return folder


def ink(page: pages.Page) -> np.ndarray:  # bool [H, W]: what is not the paper's colour
    pixels = np.asarray(page.image.convert("RGBA")).view(np.uint32)[..., 0]
    return pixels != pixels[0, 0]


def fingerprints(hash_seed: str, *indexes: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", FINGERPRINTS, *map(str, indexes)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_a_page_is_the_same_in_another_process_and_after_other_pages() -> None:
    first, second = fingerprints("1", 3, 7), fingerprints("2", 7, 3)
    assert first == second[::-1]
    assert first[0] != first[1]


def test_boxes_are_whole_pixels_inside_the_page(drawn: list[pages.Page]) -> None:
    for page in drawn:
        width, height = page.image.size
        for label, box in page.boxes:
            x_min, y_min, x_max, y_max = box
            assert 0 <= x_min < x_max <= width, (page.name, label, box)
            assert 0 <= y_min < y_max <= height, (page.name, label, box)
            assert all(side == int(side) for side in box), (page.name, label, box)


def test_ink_touches_every_side_of_every_box(drawn: list[pages.Page]) -> None:
    for page in drawn:
        marks = ink(page)
        for label, box in page.boxes:
            left, top, right, bottom = map(int, box)
            inside = marks[top:bottom, left:right]
            sides = (inside[0], inside[-1], inside[:, 0], inside[:, -1])
            assert all(side.any() for side in sides), (page.name, label, box)


def test_nothing_is_drawn_outside_the_boxes(drawn: list[pages.Page]) -> None:
    for page in drawn:
        marks = ink(page)
        for _, box in page.boxes:
            left, top, right, bottom = map(int, box)
            marks[top:bottom, left:right] = False
        assert not marks.any(), (page.name, np.argwhere(marks)[:3])


def test_no_two_boxes_overlap(drawn: list[pages.Page]) -> None:
    for page in drawn:
        taken = np.zeros(page.image.size[::-1], bool)
        for label, box in page.boxes:
            left, top, right, bottom = map(int, box)
            assert not taken[top:bottom, left:right].any(), (page.name, label, box)
            taken[top:bottom, left:right] = True


def test_every_label_is_used_and_the_pages_vary(drawn: list[pages.Page]) -> None:
    assert {label for page in drawn for label, _ in page.boxes} == set(pages.LABELS)
    assert {page.image.size for page in drawn} == set(sheet.SIZES)
    assert all(5 <= len(page.boxes) <= 25 for page in drawn)


def test_instances_load_in_pycocotools_and_match_the_drawn_pages(written: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco", reason="pycocotools is in the qualify extra")
    truth = coco.COCO(str(written / "instances.json"))
    assert [row["name"] for row in truth.loadCats(truth.getCatIds())] == list(pages.LABELS)
    assert len(truth.getImgIds()) == 5
    for index, image in enumerate(truth.loadImgs(truth.getImgIds())):
        page = pages.draw_page(index)
        rows = truth.loadAnns(truth.getAnnIds(imgIds=image["id"]))
        assert (image["width"], image["height"]) == page.image.size
        found = [(pages.LABELS[row["category_id"] - 1], row["bbox"]) for row in rows]
        assert found == [(label, [x, y, r - x, b - y]) for label, (x, y, r, b) in page.boxes]
        assert all(row["area"] == row["bbox"][2] * row["bbox"][3] for row in rows)


def test_images_are_jpeg_with_every_fifth_a_png(written: Path) -> None:
    rows = json.loads((written / "instances.json").read_text())["images"]
    assert sorted(path.name for path in (written / "images").iterdir()) == [
        row["file_name"] for row in rows
    ]
    formats = []
    for row in rows:
        with Image.open(written / "images" / row["file_name"]) as image:
            assert (image.width, image.height, image.mode) == (row["width"], row["height"], "RGB")
            formats.append(image.format)
    assert formats == ["JPEG"] * 4 + ["PNG"]
    with Image.open(written / "images" / rows[4]["file_name"]) as image:
        assert image.tobytes() == pages.draw_page(4).image.tobytes()


def small_dataset(folder: Path) -> Path:
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "a.jpg").write_bytes(b"one")
    (folder / "images" / "b.png").write_bytes(b"two")
    (folder / "instances.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "images" / "a.jpg").write_bytes(b"onE"),
        lambda folder: (folder / "instances.json").write_text("{ }"),
        lambda folder: (folder / "images" / "c.jpg").write_bytes(b""),
        lambda folder: (folder / "images" / "b.png").unlink(),
        lambda folder: (folder / "images" / "a.jpg").rename(folder / "images" / "aa.jpg"),
    ],
    ids=["image", "instances", "image-added", "image-removed", "image-renamed"],
)
def test_digest_changes_with_any_file(change, tmp_path: Path) -> None:
    folder = small_dataset(tmp_path / "dataset")
    before = coco.digest(folder)
    change(folder)
    assert coco.digest(folder) != before


def test_digest_is_of_the_content_not_of_the_place(tmp_path: Path) -> None:
    first, second = small_dataset(tmp_path / "a"), small_dataset(tmp_path / "b")
    (second / "images" / "a.jpg").touch()
    (second / "README.txt").write_text("a note beside the dataset is not the dataset")
    assert coco.digest(first) == coco.digest(second)


def test_two_writes_have_one_digest(written: Path, tmp_path: Path) -> None:
    pages.write(tmp_path / "again", count=5)
    assert coco.digest(tmp_path / "again") == coco.digest(written)


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    told = []

    def interrupt(done: int, count: int) -> None:
        told.append((done, count))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pages.write(tmp_path / "pages", count=3, progress=interrupt)
    assert told == [(1, 3), (2, 3)]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is there already"):
        pages.write(folder, count=1)
    assert [path.name for path in tmp_path.rglob("*")] == ["pages", "mine.txt"]
