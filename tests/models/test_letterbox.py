"""`Letterbox`: both rules give the published pixels, and boxes come back to where they were."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.letterbox import PAD, Letterbox

SIZES = st.tuples(st.integers(1, 6000), st.integers(1, 6000))
CANVASES = st.tuples(st.integers(32, 1333), st.integers(32, 1333))
RULES = (Letterbox.centred, Letterbox.top_left)


@pytest.mark.parametrize(
    ("source", "canvas", "resized", "top_left", "scale"),
    [
        pytest.param((480, 640), (640, 640), (480, 640), (80, 0), 1.0, id="landscape as it is"),
        pytest.param((640, 480), (640, 640), (640, 480), (0, 80), 1.0, id="portrait as it is"),
        pytest.param((1080, 1920), (640, 640), (360, 640), (140, 0), 1 / 3, id="landscape shrunk"),
        pytest.param((1000, 1000), (640, 640), (640, 640), (0, 0), 0.64, id="square"),
        pytest.param((10, 20), (640, 640), (320, 640), (160, 0), 32.0, id="tiny is enlarged"),
        pytest.param((427, 640), (640, 640), (427, 640), (106, 0), 1.0, id="213 px of pad: 106"),
        pytest.param((640, 425), (640, 640), (640, 425), (0, 107), 1.0, id="215 px of pad: 107"),
        pytest.param((721, 1280), (640, 640), (360, 640), (140, 0), 0.5, id="360.5 goes to 360"),
        pytest.param((723, 1280), (640, 640), (362, 640), (139, 0), 0.5, id="361.5 goes to 362"),
        pytest.param((1280, 721), (640, 640), (640, 360), (0, 140), 0.5, id="360.5 wide too"),
        pytest.param((2, 1280), (640, 640), (1, 640), (319, 0), 0.5, id="one row, odd pad"),
        pytest.param((1, 5000), (640, 640), (1, 640), (319, 0), 0.128, id="1x5000 keeps a row"),
        pytest.param((5000, 1), (640, 640), (640, 1), (0, 319), 0.128, id="5000x1 keeps a column"),
        pytest.param((1, 1), (640, 640), (640, 640), (0, 0), 640.0, id="one pixel"),
        pytest.param((480, 640), (320, 640), (320, 427), (0, 106), 2 / 3, id="oblong canvas"),
    ],
)
def test_the_centred_rule_places_an_image_as_ultralytics_does(
    source, canvas, resized, top_left, scale
) -> None:
    placed = Letterbox.centred(source, canvas)
    scales = resized[1] / source[1], resized[0] / source[0]
    assert placed == Letterbox(*source, *canvas, *resized, *reversed(top_left), *scales)
    # a side in whole pixels, at least one, moves its scale by less than a canvas pixel
    assert scales[0] == pytest.approx(scale, abs=1 / source[1])
    assert scales[1] == pytest.approx(scale, abs=1 / source[0])


@pytest.mark.parametrize(
    ("source", "resized"),
    [
        pytest.param((480, 640), (312, 416), id="landscape"),
        pytest.param((640, 480), (416, 312), id="portrait"),
        pytest.param((832, 832), (416, 416), id="square"),
        pytest.param((10, 20), (208, 416), id="tiny is enlarged"),
        pytest.param((427, 640), (277, 416), id="277.55 is cut to 277"),
        pytest.param((721, 832), (360, 416), id="360.5 is cut to 360"),
        pytest.param((723, 832), (361, 416), id="361.5 is cut to 361"),
        pytest.param((1, 5000), (1, 416), id="1x5000 keeps a row"),
        pytest.param((5000, 1), (416, 1), id="5000x1 keeps a column"),
        # 416 / 23 * 23 is 415.99999999999994 in doubles, and Megvii's `int` cuts it, too
        pytest.param((23, 23), (415, 415), id="a side that doubles miss by a hair"),
    ],
)
def test_the_top_left_rule_places_an_image_as_megvii_does(source, resized) -> None:
    placed = Letterbox.top_left(source, (416, 416))
    scale = min(416 / source[0], 416 / source[1])
    assert placed == Letterbox(
        *source, 416, 416, *resized, left=0, top=0, scale_x=scale, scale_y=scale
    )


@pytest.mark.parametrize("rule", RULES)
@given(source=SIZES, canvas=CANVASES)
@settings(deadline=None, max_examples=200)
def test_the_resized_image_lies_inside_its_canvas_with_the_larger_pad_last(
    rule, source, canvas
) -> None:
    placed = rule(source, canvas)
    right = placed.canvas_width - placed.left - placed.resized_width
    bottom = placed.canvas_height - placed.top - placed.resized_height
    assert placed.resized_height >= 1
    assert placed.resized_width >= 1
    assert min(placed.left, placed.top, right, bottom) >= 0
    if rule == Letterbox.centred:
        assert right - placed.left in (0, 1)
        assert bottom - placed.top in (0, 1)
        assert 0 in (right, bottom)  # one side fills the canvas


@pytest.mark.parametrize(
    "source", [(480, 640), (375, 500), (721, 1280), (33, 21), (1, 700), (700, 1), (416, 416)]
)
@pytest.mark.parametrize("rule", RULES)
def test_painting_is_opencv_s_resize_inside_opencv_s_border(rule, source) -> None:
    image = np.random.default_rng(3).integers(0, 256, (*source, 3), np.uint8)
    placed = rule(source, (416, 416))
    inner = image
    if (placed.resized_height, placed.resized_width) != source:
        inner = cv2.resize(image, (placed.resized_width, placed.resized_height))
    expected = cv2.copyMakeBorder(
        inner,
        placed.top,
        416 - placed.top - placed.resized_height,
        placed.left,
        416 - placed.left - placed.resized_width,
        cv2.BORDER_CONSTANT,
        value=(PAD, PAD, PAD),
    )
    painted = placed.paint(image)
    assert painted.dtype == np.uint8
    assert PAD == 114
    np.testing.assert_array_equal(painted, expected)


@pytest.mark.parametrize("rule", RULES)
def test_what_is_painted_is_where_the_boxes_say_it_is(rule) -> None:
    image = np.zeros((300, 500, 3), np.uint8)
    image[60:150, 100:400] = 255
    placed = rule(image.shape[:2], (640, 640))
    bright = (placed.paint(image) > 127).all(axis=2)
    rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
    found = np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], np.float32)
    np.testing.assert_allclose(placed.to_source(found), [[100, 60, 400, 150]], atol=1)


@pytest.mark.parametrize("rule", RULES)
@given(source=SIZES, canvas=CANVASES, corners=st.lists(st.floats(0, 1), min_size=4, max_size=4))
@settings(deadline=None, max_examples=300)
def test_a_box_inside_the_image_returns_to_within_a_hundredth_of_a_pixel(
    rule, source, canvas, corners
) -> None:
    height, width = source
    placed = rule(source, canvas)
    box = np.array(corners) * [width, height, width, height]
    scales = [placed.scale_x, placed.scale_y] * 2
    on_canvas = box * scales + [placed.left, placed.top, placed.left, placed.top]
    found = placed.to_source(on_canvas.astype(np.float32)[None])
    assert found.dtype == np.float32
    assert found.shape == (1, 4)
    np.testing.assert_allclose(found[0], box, rtol=0, atol=0.01)


def test_each_axis_of_a_large_image_has_its_own_scale() -> None:
    """One scale for both axes puts this box's right side at 1331.25: a bug that was here."""
    placed = Letterbox.centred((2000, 1333), (640, 640))  # 426.56 columns become 427
    right = placed.left + placed.resized_width
    found = placed.to_source(np.array([[placed.left, 0, right - 1, 640]], np.float32))
    np.testing.assert_allclose(found, [[0, 0, 426 / 427 * 1333, 2000]], rtol=1e-6)


def test_boxes_are_cut_at_the_edges_of_the_image_and_not_of_the_canvas() -> None:
    placed = Letterbox.centred((320, 640), (640, 640))  # 160 rows of pad above and below
    boxes = np.array([[-9, 0, 700, 640], [10, 100, 20, 170], [600, 470, 650, 500]], np.float32)
    np.testing.assert_array_equal(
        placed.to_source(boxes), [[0, 0, 640, 320], [10, 0, 20, 10], [600, 310, 640, 320]]
    )


def test_no_box_at_all_stays_none() -> None:
    found = Letterbox.top_left((30, 40), (416, 416)).to_source(np.empty((0, 4), np.float32))
    assert found.shape == (0, 4)
    assert found.dtype == np.float32
