"""mAP of hand-made cases whose value is known, and the selection of the gate's 100 images."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.catalogue import CocoDataset
from models.detections import Detections
from models.errors import QualificationError
from qualification.datasets import coco
from qualification.datasets.coco import Dataset, DatasetImage
from qualification.evidence import Seen
from qualification.mean_ap import mean_ap

CATEGORIES = [{"id": 3, "name": "cat"}, {"id": 17, "name": "dog"}]  # sparse, as COCO's are


def annotation(number: int, image: int, category: int, bbox: list[float], **more: Any) -> Any:
    area = bbox[2] * bbox[3]
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": bbox,
        "area": area,
        "iscrowd": 0,
    } | more


def dataset(annotations: list[Any], images: int = 2, categories: list[Any] = CATEGORIES) -> Dataset:
    """Images of 100x100 pixels with the ids 1, 2, ... and the names 1.jpg, 2.jpg, ..."""
    ids = range(1, images + 1)
    return Dataset(
        name="made",
        digest="d",
        images=[DatasetImage(number, f"{number}.jpg", Path(f"{number}.jpg")) for number in ids],
        ground_truth={
            "images": [{"id": number, "width": 100, "height": 100} for number in ids],
            "categories": categories,
            "annotations": copy.deepcopy(annotations),
        },
    )


def seen(image: str, *found: tuple[str, list[float], float]) -> Seen:
    """found: label, xyxy, score, by falling score."""
    labels = [label for label, _, _ in found]
    return Seen(
        image,
        Detections(
            np.array([box for _, box, _ in found], np.float32).reshape(-1, 4),
            np.array([score for _, _, score in found], np.float32),
            np.zeros(len(found), np.int32),
            height=100,
            width=100,
        ),
        labels,
    )


TRUTH = [annotation(1, 1, 3, [10, 10, 40, 40]), annotation(2, 2, 17, [20, 20, 30, 60])]
CAT, DOG = [10, 10, 50, 50], [20, 20, 50, 80]
NOTHING = (seen("1.jpg"), seen("2.jpg"))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            [seen("1.jpg", ("cat", CAT, 0.9)), seen("2.jpg", ("dog", DOG, 0.6))],
            (1, 1, 2),
            id="every box right",
        ),
        pytest.param(
            [seen("1.jpg", ("cat", CAT, 0.9)), seen("2.jpg")],
            (0.5, 0.5, 1),
            id="one of two classes",
        ),
        pytest.param([*NOTHING], (0, 0, 0), id="no box at all"),
        pytest.param([seen("1.jpg", ("bird", CAT, 0.9))], (0, 0, 0), id="labels of another space"),
        pytest.param(
            [seen("1.jpg", ("dog", CAT, 0.9)), seen("2.jpg", ("cat", DOG, 0.9))],
            (0, 0, 2),
            id="labels swapped",
        ),
        pytest.param(
            # 28 of 40 rows: an IoU of 0.7, right at .50, .55, .60, .65 and .70 of ten thresholds
            [seen("1.jpg", ("cat", [10, 10, 50, 38], 0.9)), seen("2.jpg", ("dog", DOG, 0.6))],
            (0.75, 1, 2),
            id="a box that is half right",
        ),
        pytest.param(
            [seen("1.jpg", ("cat", [60, 60, 90, 90], 0.9), ("cat", CAT, 0.8))],
            (0.25, 0.25, 2),
            id="a wrong box above the right one halves the precision",
        ),
        pytest.param(
            [seen("2.jpg", ("cat", CAT, 0.9)), seen("1.jpg", ("dog", DOG, 0.6))],
            (0, 0, 2),
            id="the boxes of another image",
        ),
    ],
)
def test_map_of_hand_made_detections(found: list[Seen], expected: tuple[float, float, int]) -> None:
    measured = mean_ap(dataset(TRUTH), found)
    assert (measured.map, measured.map50, measured.scored_boxes) == pytest.approx(expected)


def test_labels_are_mapped_to_categories_and_others_left_out() -> None:
    found = [seen("1.jpg", ("feline", CAT, 0.9), ("cat", [0, 0, 9, 9], 0.5))]
    both = dataset(TRUTH[:1])
    assert mean_ap(both, found).map == 0  # only the box called cat counts
    mapped = mean_ap(both, found, {"feline": "cat"})
    assert (mapped.map, mapped.scored_boxes) == (pytest.approx(1), 1)
    assert mean_ap(both, found, {"feline": "lion"}).scored_boxes == 0


def test_several_labels_may_belong_to_one_category() -> None:
    found = [seen("1.jpg", ("feline", CAT, 0.9)), seen("2.jpg", ("kitten", DOG, 0.9))]
    cats = dataset([TRUTH[0], annotation(2, 2, 3, [20, 20, 30, 60])])
    assert mean_ap(cats, found, {"feline": "cat", "kitten": "cat"}).map == pytest.approx(1)


def test_a_category_without_an_object_does_not_count() -> None:
    assert mean_ap(dataset(TRUTH[:1]), [seen("1.jpg", ("cat", CAT, 0.9))]).map == pytest.approx(1)


def test_measuring_leaves_the_ground_truth_as_it_was_and_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = dataset(TRUTH)
    before = copy.deepcopy(whole.ground_truth)
    first = mean_ap(whole, [seen("1.jpg", ("cat", CAT, 0.9))])
    assert mean_ap(whole, [seen("1.jpg", ("cat", CAT, 0.9))]) == first
    assert whole.ground_truth == before
    assert capsys.readouterr().out == ""


# --- the selection


def names(selected: Dataset) -> list[int]:
    return [image.id for image in selected.images]


SMALL, TENTH = [0, 0, 9, 11], [0, 0, 10, 10]  # 0.99 % and exactly 1 % of 100x100


@pytest.mark.parametrize(
    ("annotations", "count", "taken"),
    [
        pytest.param(
            [annotation(1, 2, 3, TENTH), annotation(2, 1, 17, TENTH), annotation(3, 3, 3, TENTH)],
            9,
            [2, 1, 3],
            id="the categories take turns",
        ),
        pytest.param(
            [annotation(1, 1, 17, TENTH), annotation(2, 2, 3, TENTH)],
            9,
            [2, 1],
            id="the lower category id goes first, whatever the annotation's id",
        ),
        pytest.param(
            [annotation(9, 1, 3, TENTH), annotation(4, 2, 3, TENTH), annotation(6, 3, 3, TENTH)],
            9,
            [2, 3, 1],
            id="a category's images stand in the order of its annotations' ids",
        ),
        pytest.param(
            [annotation(1, 1, 3, TENTH, iscrowd=1), annotation(2, 2, 3, TENTH)],
            9,
            [2],
            id="a crowd brings no image in",
        ),
        pytest.param(
            [annotation(1, 1, 3, SMALL), annotation(2, 2, 3, TENTH)],
            9,
            [2],
            id="an object below one percent brings no image in",
        ),
        pytest.param(
            [
                annotation(1, 1, 3, [0, 0, 0, 50], area=2000),
                annotation(2, 2, 3, [0, 0, 50, 0], area=2000),
                annotation(3, 3, 3, [0, 0, 50, 50], area=0),
                annotation(4, 4, 3, TENTH),
            ],
            9,
            [4],
            id="an object without width, height or area brings no image in",
        ),
        pytest.param(
            [annotation(1, 1, 3, SMALL), annotation(2, 1, 3, TENTH), annotation(3, 2, 3, TENTH)],
            9,
            [1, 2],
            id="a later, larger object of the category brings it in",
        ),
        pytest.param(
            # cats on 1, 2, 4 and dogs on 1, 3: dog's first turn is lost on 1, and cat goes again
            [
                annotation(1, 1, 3, TENTH),
                annotation(2, 2, 3, TENTH),
                annotation(3, 4, 3, TENTH),
                annotation(4, 1, 17, TENTH),
                annotation(5, 3, 17, TENTH),
            ],
            9,
            [1, 2, 3, 4],
            id="a category loses its turn on an image that is taken",
        ),
        pytest.param(
            [
                annotation(1, 1, 3, TENTH),
                annotation(2, 1, 17, TENTH),
                annotation(3, 2, 17, TENTH),
                annotation(4, 3, 3, TENTH),
            ],
            2,
            [1, 3],
            id="a lost turn is not made up for before the count is reached",
        ),
        pytest.param(
            [annotation(1, 1, 3, TENTH), annotation(2, 1, 3, TENTH), annotation(3, 2, 17, TENTH)],
            9,
            [1, 2],
            id="two objects of one category in an image count once",
        ),
        pytest.param([annotation(1, 1, 3, SMALL)], 9, [], id="nothing qualifies"),
    ],
)
def test_which_images_are_taken(annotations: list[Any], count: int, taken: list[int]) -> None:
    assert names(coco.select(dataset(annotations, images=4), count)) == taken


def test_ground_truth_of_a_taken_image_is_all_its_valid_objects_small_ones_too() -> None:
    annotations = [
        annotation(5, 1, 3, TENTH),
        annotation(4, 1, 17, SMALL),
        annotation(3, 1, 17, TENTH, iscrowd=1),
        annotation(2, 1, 17, [0, 0, 5, 0], area=5),
        annotation(1, 1, 17, TENTH, area=0),
        annotation(0, 2, 17, SMALL),
    ]
    selected = coco.select(dataset(annotations))
    assert [one["id"] for one in selected.ground_truth["annotations"]] == [4, 5]
    assert [one["id"] for one in selected.ground_truth["images"]] == [1]
    assert selected.ground_truth["categories"] == CATEGORIES
    assert selected.name == "made-1"


def test_the_order_of_the_file_s_categories_means_nothing() -> None:
    annotations = [annotation(1, 1, 17, TENTH), annotation(2, 2, 3, TENTH)]
    assert names(coco.select(dataset(annotations, categories=CATEGORIES[::-1]))) == [2, 1]


def test_the_digest_follows_the_files_and_the_selection() -> None:
    whole = dataset([annotation(1, 1, 3, TENTH), annotation(2, 2, 3, TENTH)])
    digests = {
        coco.select(whole).digest,
        coco.select(whole, 1).digest,
        coco.select(Dataset("made", "e", whole.images, whole.ground_truth)).digest,
    }
    assert len(digests) == 3
    assert coco.select(whole).digest in digests


def plain_selection(document: dict[str, Any], count: int) -> list[int]:
    """FACTS section 1, "The 100 images", sentence by sentence."""
    size = {image["id"]: image["width"] * image["height"] for image in document["images"]}
    pairs: list[tuple[int, int]] = []
    for one in sorted(document["annotations"], key=lambda one: one["id"]):
        _, _, width, height = one["bbox"]
        if one["iscrowd"] == 0 and width > 0 and height > 0 and one["area"] > 0:
            pair = (one["category_id"], one["image_id"])
            if one["area"] / size[one["image_id"]] >= 0.01 and pair not in pairs:
                pairs.append(pair)
    categories = sorted({category for category, _ in pairs})
    rounds = max(sum(pair[0] == category for pair in pairs) for category in categories)
    taken: list[int] = []
    for turn in range(rounds):
        for category in categories:
            own = [image for other, image in pairs if other == category]
            if turn < len(own) and own[turn] not in taken and len(taken) < count:
                taken.append(own[turn])
    return taken


def test_the_selection_of_real_images_is_that_of_the_plain_rules(data: Path) -> None:
    whole = coco.read("coco128", data / "coco128")
    document = json.loads((data / "coco128" / "instances.json").read_text())
    for count in (1, 40, 100):
        selected = coco.select(whole, count)
        assert names(selected) == plain_selection(document, count)
        assert len(selected.images) == count
        chosen = set(names(selected))
        assert {one["image_id"] for one in selected.ground_truth["annotations"]} <= chosen
        assert {one["id"] for one in selected.ground_truth["images"]} == chosen
        assert all(image.path.is_file() for image in selected.images)


def test_a_checkpoint_s_coco_dataset_is_its_100_images(data: Path) -> None:
    loaded = coco.load(CocoDataset(type="coco", folder="coco128"))
    assert (loaded.name, len(loaded.images)) == ("coco128-100", 100)
    assert coco.load(CocoDataset(type="coco", folder="coco128")).digest == loaded.digest


def test_a_dataset_that_is_not_there_is_an_error_that_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETSERVE_DATA", str(tmp_path))
    with pytest.raises(QualificationError, match=r"mine: it needs images/ and instances\.json"):
        coco.load(CocoDataset(type="coco", folder="mine"))
