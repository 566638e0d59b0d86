"""The coverage matrix says what is catalogued and served, and the catalogue what was published."""

from pathlib import Path

import pytest

from models import catalogue
from models.catalogue import GAPS, coverage
from models.family import family
from models.labels import LABEL_SETS
from models.sources import MAIN, HuggingFaceSource
from models.status import Status

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md"

YOLO_GATE, DETR_GATE = {"score": 0.005, "side_px": 1.0}, {"iou": 0.5, "score": 0.05}

# input, labels, threshold, owning gate
YOLO = ("640 high, 640 wide: letterboxed centred, pad 114", "coco80", "≥ 0.25", YOLO_GATE)
SHORTEST_EDGE = (
    "follows the image: shorter side to 800, longer at most 1333, aspect kept, no padding"
)
DETR = (SHORTEST_EDGE, "coco91", "> 0.5", DETR_GATE)
YOLOS = ("512 high, 864 wide: stretched", "coco91", "> 0.5", DETR_GATE)
RT_DETR = ("640 high, 640 wide: stretched", "coco80", "> 0.5", DETR_GATE)

# The ten checkpoints of the reference system (FACTS, section 1), written out a second time: id,
# repository@revision, weights, what they share. Two addresses are not in FACTS but assumed, as
# their files say: rtdetr-r50vd's, whose revision is not known, and deformable-detr's.
TEN = [
    ("yolov5n", "Ultralytics/YOLOv5@5bca797074771ecdfd6267d6e9be32ee201d937b",
     "yolov5n.pt", YOLO),
    ("yolov8n", "Ultralytics/YOLOv8@27f858f2dc238503a66ce10248cf7ec71a3ded5d",
     "yolov8n.pt", YOLO),
    ("yolov10n", "jameslahm/yolov10n@3b91f578c5b492080f191a26aa35711bb44f608c",
     "model.safetensors", YOLO),
    ("yolov10s", "jameslahm/yolov10s@9096a248f4ab5dd21b3d9e9fa0295534db1b87ff",
     "model.safetensors", YOLO),
    ("yolov10x", "jameslahm/yolov10x@6d7c9b6871ffa50dfd2764fa896bc0e33294233c",
     "model.safetensors", YOLO),
    ("yolo11n", "Ultralytics/YOLO11@8b8ac7d1fae7468f85dbf89670dd66f41f485aab",
     "yolo11n.pt", YOLO),
    ("detr-resnet-50", "facebook/detr-resnet-50@1d5f47bd3bdd2c4bbfa585418ffe6da5028b4c0b",
     "model.safetensors", DETR),
    ("yolos-small", "hustvl/yolos-small@3d8f7130d3ce4907cb206fe1c8485dc8fe8703de",
     "model.safetensors", YOLOS),
    ("rtdetr-r50vd", "PekingU/rtdetr_r50vd@main",
     "model.safetensors", RT_DETR),
    ("deformable-detr", "SenseTime/deformable-detr@83ecd26945199939cb82806f988debdb71e6f43e",
     "model.safetensors", DETR),
]  # fmt: skip


def test_the_page_is_up_to_date() -> None:
    made = coverage.page()
    assert PAGE.read_text(encoding="utf-8") == made, "run `make docs`"


@pytest.mark.parametrize(("name", "address", "weights", "shared"), TEN)
def test_the_ten_checkpoints_are_those_of_the_reference_system(
    name: str, address: str, weights: str, shared: tuple[str, str, str, dict[str, float]]
) -> None:
    placed, labels, threshold, bounds = shared
    checkpoint = catalogue.load(name)
    assert isinstance(checkpoint.source, HuggingFaceSource)
    assert f"{checkpoint.source.repo}@{checkpoint.source.revision}" == address
    assert weights in checkpoint.source.files
    assert coverage.input_rule(checkpoint) == placed
    assert checkpoint.labels == LABEL_SETS[labels]
    assert coverage.threshold_rule(checkpoint) == threshold
    assert family(checkpoint.family).criteria.bounds() == bounds
    assert checkpoint.gates.map_drop == 0.02


def test_every_row_has_the_facts_of_its_file() -> None:
    tables = [line for line in coverage.page().splitlines() if line.startswith("| ")]
    for name in catalogue.shipped():
        checkpoint = catalogue.load(name)
        proof, facts = (line for line in tables if line.startswith(f"| {name} |"))
        proved = checkpoint.proved
        for cell in (checkpoint.title, proved.status, proved.note, ", ".join(checkpoint.gaps)):
            assert f"| {cell} |" in proof
        for cell in (checkpoint.source.address, checkpoint.family, checkpoint.licence):
            assert f"| {cell} |" in facts
        gates = checkpoint.gates
        assert f": drop {gates.map_drop:g}, floor {gates.reference_floor:g}" in facts
        for kind, figure in (("mAP", gates.published_map), ("mAP50", gates.published_map50)):
            assert (figure is None) or f", published {kind} {figure:g}" in facts
    assert len(tables) == 2 * (2 + len(catalogue.shipped()))


def test_every_gap_of_a_file_is_explained_and_no_other() -> None:
    page = coverage.page()
    named = {gap for name in catalogue.shipped() for gap in catalogue.load(name).gaps}
    for gap, meaning in GAPS.items():
        assert (f"- **{gap}**: {meaning}\n" in page) == (gap in named)


@pytest.mark.parametrize("name", catalogue.shipped())
def test_what_a_file_leaves_open_is_named_as_a_gap(name: str) -> None:
    checkpoint = catalogue.load(name)
    source = checkpoint.source
    assert checkpoint.proved.status is not Status.PLANNED  # of the shipped ones each is built
    if None in source.files.values():
        assert "weights" in checkpoint.gaps
    if isinstance(source, HuggingFaceSource) and source.revision == MAIN:
        assert "revision" in checkpoint.gaps


def test_a_bar_in_a_cell_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = catalogue.load("yolox-nano").model_copy(update={"title": "this | that"})
    monkeypatch.setattr(coverage, "shipped", lambda: ["yolox-nano"])
    monkeypatch.setattr(coverage, "load", lambda _: checkpoint)
    assert "| yolox-nano | this \\| that | " in coverage.page()
