"""What the page's pictures, curves and charts are made of: each by cases whose answer is known."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from models.criteria import RankedCriteria
from qualification import performance
from qualification.aiperf import AIPerfEvidence
from qualification.evidence import Seen
from qualification.html import charts, choice, curves, drawing
from qualification.html.choice import DIFFER, INACCURATE, TYPICAL, Against, Chosen
from qualification.html.truth import Truth
from qualification.mean_ap import mean_ap
from tests.qualification import made_run
from tests.qualification.test_mean_ap import annotation, dataset
from tests.qualification.test_mean_ap import seen as coco_seen

CRITERIA = RankedCriteria(score=0.005, side_px=1.0)
CAT, DOG = [10, 10, 50, 50], [20, 20, 50, 80]
CAT_WIDE = [10, 10, 70, 50]  # IoU 2/3 with CAT
TRUTH = Truth(
    dataset([annotation(1, 1, 3, [10, 10, 40, 40]), annotation(2, 1, 17, [20, 20, 30, 60])]), None
)


@pytest.mark.parametrize(
    ("found", "extra", "missed"),
    [
        pytest.param([("cat", CAT, 0.9), ("dog", DOG, 0.8)], [0, 0], [0, 0], id="all found"),
        pytest.param([("cat", CAT, 0.9)], [0], [0, 1], id="one missed"),
        pytest.param([], [], [1, 1], id="nothing found"),
        pytest.param([("dog", CAT, 0.9)], [1], [1, 1], id="another class"),
        pytest.param([("cat", CAT_WIDE, 0.9)], [0], [0, 1], id="overlapping enough"),
        pytest.param([("cat", [40, 10, 80, 50], 0.9)], [1], [1, 1], id="beside it"),
        pytest.param(
            [("cat", CAT_WIDE, 0.9), ("cat", CAT, 0.8)], [0, 1], [0, 1], id="an object counts once"
        ),
        pytest.param([("mouse", CAT, 0.9)], [0], [1, 1], id="an unscored label is not judged"),
    ],
)
def test_detections_against_ground_truth(found: Any, extra: list[int], missed: list[int]) -> None:
    judged = choice.against(coco_seen("1.jpg", *found), TRUTH.boxes()["1.jpg"], TRUTH)
    assert judged.extra.tolist() == [bool(value) for value in extra]
    assert judged.missed.tolist() == [bool(value) for value in missed]


def test_a_label_counts_as_the_category_that_the_checkpoint_says() -> None:
    renamed = Truth(TRUTH.dataset, {"kitten": "cat", "puppy": "wolf"})
    assert [renamed.category(label) for label in ("kitten", "puppy", "cat")] == ["cat", None, None]


def test_a_crowd_is_no_object() -> None:
    crowd = annotation(1, 1, 3, [10, 10, 40, 40], iscrowd=1)
    boxes, names = Truth(dataset([crowd]), None).boxes()["1.jpg"]
    assert (boxes.shape, names) == ((0, 4), [])


@pytest.mark.parametrize(
    ("extra", "missed", "f1"),
    [([], [], 1), ([True], [True], 0), ([False], [False, True], 2 / 3), ([], [True], 0)],
)
def test_f1(extra: list[bool], missed: list[bool], f1: float) -> None:
    assert Against(np.array(extra, bool), np.array(missed, bool)).f1 == pytest.approx(f1)


def images(*found: list[tuple[str, list[float], float]]) -> tuple[list[Seen], Truth]:
    """The detections of image 1, 2, …, each of which holds one cat."""
    truth = dataset(
        [annotation(number, number, 3, [10, 10, 40, 40]) for number in range(1, len(found) + 1)],
        images=len(found),
    )
    seen = [coco_seen(f"{number}.jpg", *boxes) for number, boxes in enumerate(found, 1)]
    return seen, Truth(truth, None)


def test_the_worst_of_each_kind_is_chosen_before_the_second_worst() -> None:
    right, cats = [("cat", CAT, 0.9)], [("cat", CAT, 0.9), ("cat", DOG, 0.5), ("cat", DOG, 0.4)]
    native, truth = images(right, [], right, cats, right, right)
    reference, _ = images(
        [("cat", [10, 10, 50.5, 50], 0.9)],  # half a pixel off
        [],
        [("cat", CAT, 0.9), ("cat", DOG, 0.3)],  # a box more: fails
        cats,
        [("cat", CAT, 0.899)],  # a fifth of the bound on scores
        right,
    )
    chosen = choice.choose(native, reference, truth, CRITERIA, 6)
    assert [(case.kind, case.native.image) for case in chosen[:3]] == [
        (DIFFER, "3.jpg"),
        (INACCURATE, "2.jpg"),
        (TYPICAL, "1.jpg"),
    ]
    assert [(case.kind, case.native.image) for case in chosen[3:]] == [
        (DIFFER, "5.jpg"),
        (INACCURATE, "4.jpg"),
        (TYPICAL, "6.jpg"),
    ]
    assert chosen[0].problem == "1 boxes, the reference has 2"
    assert chosen[2].differences == {"score": 0, "side_px": 0.5}


def test_images_that_are_equal_or_all_right_are_not_called_worst() -> None:
    native, truth = images(*[[("cat", CAT, 0.9)]] * 4)
    chosen = choice.choose(native, native, truth, CRITERIA, 3)
    assert [case.kind for case in chosen] == [TYPICAL] * 3


def test_without_reference_and_ground_truth_the_typical_are_those_of_a_usual_count() -> None:
    native, _ = images([("cat", CAT, 0.9)] * 9, [("cat", CAT, 0.9)] * 2, [("cat", CAT, 0.9)])
    chosen = choice.choose(native, None, None, None, 1)
    assert [(case.kind, case.native.image) for case in chosen] == [(TYPICAL, "2.jpg")]


@pytest.fixture
def grey(tmp_path) -> Any:
    """A grey image of 400x300 pixels."""
    path = tmp_path / "grey.png"
    Image.new("RGB", (made_run.WIDTH, made_run.HEIGHT), (128, 128, 128)).save(path)
    return path


def drawn(grey: Any, *, native: Any, reference: Any, objects: Any, longest_side: int = 900) -> Any:
    names = [name for name, _ in objects]
    boxes = np.array([box for _, box in objects], np.float32).reshape(-1, 4)
    against = Against(np.zeros(len(native), bool), np.zeros(len(names), bool))
    ours, theirs = (
        made_run.seen("grey.png", [(name, box, 0.9) for name, box in side])
        for side in (native, reference)
    )
    chosen = Chosen(TYPICAL, ours, theirs, (boxes, names), against, None, {})
    return np.asarray(drawing.draw(grey, chosen, longest_side))


def share(line: np.ndarray, colour: drawing.Colour) -> float:
    return float((line == colour).all(axis=-1).mean())


BOX = ("cat", (100, 60, 300, 240))


def test_native_is_solid_the_reference_dashed_and_ground_truth_has_corners(grey: Any) -> None:
    # right sides: the label lies on the left
    solid = drawn(grey, native=[BOX], reference=[], objects=[])[70:230, 299]
    assert share(solid, drawing.NATIVE) == 1
    dashed = drawn(grey, native=[], reference=[BOX], objects=[])[70:230, 299]
    assert 0.4 < share(dashed, drawing.REFERENCE) < 0.6
    page = drawn(grey, native=[], reference=[], objects=[BOX])
    assert share(page[58:66, 295:310].reshape(-1, 3), drawing.TRUTH) > 0.2
    assert share(page[130:170, 280:320].reshape(-1, 3), drawing.TRUTH) == 0


def test_equal_boxes_show_both_strokes_and_the_corners_round_them(grey: Any) -> None:
    page = drawn(grey, native=[BOX], reference=[BOX], objects=[BOX])
    side = page[70:230, 299]
    assert share(side, drawing.NATIVE) + share(side, drawing.REFERENCE) == 1
    assert 0.4 < share(side, drawing.REFERENCE) < 0.6
    assert share(page[236:250, 300:312].reshape(-1, 3), drawing.TRUTH) > 0.2


def test_a_picture_is_shrunk_with_its_boxes(grey: Any) -> None:
    page = drawn(grey, native=[BOX], reference=[], objects=[], longest_side=200)
    assert page.shape == (150, 200, 3)
    assert share(page[40:110, 149], drawing.NATIVE) == 1


@pytest.mark.parametrize("box", [(-50, -50, 500, 400), (0, 0, 0, 0), (399, 299, 400, 300)])
def test_a_box_at_or_over_the_edge_is_drawn(grey: Any, box: Any) -> None:
    found = [("cat", box)]
    page = drawn(grey, native=found, reference=found, objects=found).reshape(-1, 3)
    assert share(page, drawing.NATIVE) > 0


@pytest.mark.parametrize("seed", range(10))
def test_the_area_below_a_curve_is_pycocotools_own_ap(seed: int) -> None:
    generator = np.random.default_rng(seed)

    def box() -> list[float]:
        x, y, width, height = (float(value) for value in generator.uniform(5, 45, 4))
        return [x, y, x + width, y + height]

    annotations, found = [], []
    for image in (1, 2):
        boxes = []
        for category, name in ((3, "cat"), (17, "dog"))[: image + seed % 2]:
            x_min, y_min, x_max, y_max = box()
            placed = [x_min, y_min, x_max - x_min, y_max - y_min]
            annotations.append(annotation(len(annotations) + 1, image, category, placed))
            boxes += [(name, [x_min, y_min, x_max + 3, y_max], 0.8), (name, box(), 0.6)]
        boxes.sort(key=lambda one: -one[2])
        found.append(coco_seen(f"{image}.jpg", *boxes))
    truth = Truth(dataset(annotations), None)
    at_50, at_75 = curves.precision_recall(truth, found)
    judged = mean_ap(truth.dataset, found)
    assert 0 < judged.map50 == pytest.approx(at_50.mean())
    assert at_75.mean() <= at_50.mean()
    assert (np.diff(at_50) <= 1e-12).all()


def test_without_a_scored_box_the_curve_is_zero() -> None:
    assert all(not curve.any() for curve in curves.precision_recall(TRUTH, [coco_seen("1.jpg")]))


def test_latencies_leave_out_warm_up_failures_and_what_is_not_joined_once() -> None:
    evidence = AIPerfEvidence.model_validate(made_run.aiperf(requests=6, failed=1))
    evidence.records["id1"] *= 2
    evidence.records["id2"][0]["tasks"] = []
    del evidence.records["id3"]
    found = performance.series(evidence)
    assert found["client"] == pytest.approx([20.1, 20.2, 20.3, 20.4, 20.5])
    assert found["handler"] == pytest.approx([18.4, 18.5])
    assert list(found) == [
        *("client", "handler", "queue", "task_call_wall"),
        *("decode", "preprocess", "engine", "postprocess"),
    ]


def test_a_run_without_a_success_has_no_latencies() -> None:
    evidence = AIPerfEvidence.model_validate(made_run.aiperf(requests=3, failed=3))
    assert performance.series(evidence) == {}
    assert performance.images_per_s(evidence) is None


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [
        (0, [0, 1]),
        (1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (3.41, [0, 1, 2, 3, 4]),
        (60.17, [0, 20, 40, 60, 80]),
        (364.8, [0, 100, 200, 300, 400]),
    ],
)
def test_an_axis_ends_at_a_round_value_above_the_largest(
    largest: float, ticks: list[float]
) -> None:
    chart = charts.over_load("t", "y", "concurrency", [1, 2], {"p50": [0, largest]})
    assert [float(tick.text) for tick in chart.y] == ticks
    assert all(charts.TOP <= tick.at <= charts.BOTTOM for tick in chart.y)


@pytest.mark.parametrize(
    "values", [[5.0, 5.0], [0.0, 3.0], [0.3, 600.0], [1.0, 1.1], [250.0, 900.0]]
)
def test_strips_stay_on_the_chart_and_have_a_scale(values: list[float]) -> None:
    made = charts.latencies({"client": values, "handler": values})
    first, second = made.strips
    assert 0 <= first.band[0] <= first.p50[0] <= first.band[1] <= charts.WIDTH
    assert (second.top, second.depth) == (charts.STRIP, 1)
    assert made.ticks
    assert all(0 <= tick.at <= charts.WIDTH for tick in made.ticks)


def test_a_curve_keeps_its_corners_and_ends_and_no_level_points() -> None:
    step = np.where(np.arange(101) < 50, 1.0, 0.5)
    chart = charts.precision_recall(0.5, {"native": step})
    places = [tuple(map(float, place.split(","))) for place in chart.lines[0].points.split()]
    assert len(places) == 4
    assert places[0] == (charts.LEFT, charts.TOP)
    assert places[-1] == (charts.RIGHT, (charts.TOP + charts.BOTTOM) / 2)
