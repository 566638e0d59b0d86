"""Both families against the published files themselves: the bundle's graph changes no bit that
numpy would not, the labels are the published ones, and the reference agrees on real images.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from models import building, catalogue
from models.bundle import Bundle
from models.catalogue import Checkpoint
from models.engine import Engine
from models.errors import BundleError, DamagedImage
from models.family import Family, family, family_names, family_sources
from models.fetch import fetch
from models.graph import OUTPUTS
from models.images import decode
from models.ultralytics.onnx_form import published_labels

CHECKPOINTS = ("yolov8n-coco", "yolox-nano")
# landscape, portrait with odd sides, and one that both canvases cut or enlarge
IMAGES = ("000000000009.jpg", "000000000049.jpg", "000000000077.jpg")
MAX_PIXELS = 10_000_000


@dataclass(frozen=True)
class Case:
    """One real checkpoint: its published files, and its bundle loaded as a replica does."""

    checkpoint: Checkpoint
    files: dict[str, Path]
    bundle: Bundle
    engine: Engine

    @property
    def family(self) -> Family:
        return family(self.checkpoint.family)


@pytest.fixture(scope="module", params=CHECKPOINTS)
def case(request: pytest.FixtureRequest, data: Path) -> Case:
    checkpoint = catalogue.load(request.param)
    files = fetch(checkpoint.source, checkpoint.id, checkpoint.licence, log=ignore)
    built = building.ensure(checkpoint, "onnxruntime", "fp32", log=ignore)
    return Case(checkpoint, files, built, built.engine(threads=1))


def ignore(message: str) -> None:
    """Progress of building is of no interest here."""


def canvas_of(case: Case, data: Path, name: str) -> np.ndarray:
    """uint8 [1, H, W, 3]: noise, or a real image letterboxed."""
    if name == "noise":
        shape = (1, *case.checkpoint.canvas, 3)
        return np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    encoded = (data / "coco128" / "images" / name).read_bytes()
    return case.bundle.place(decode(encoded, MAX_PIXELS))[1]


def by_numpy(case: Case, canvas: np.ndarray) -> dict[str, np.ndarray]:
    """The published graph, with preprocessing and decoding as its documentation has them."""
    (path,) = case.files.values()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    planes = canvas.transpose(0, 3, 1, 2).astype(np.float32)
    if case.checkpoint.family == "yolov8":
        (output,) = session.run(None, {"images": planes / np.float32(255)})
        rows = output.transpose(0, 2, 1)
        centres, sizes, class_scores = rows[..., :2], rows[..., 2:4], rows[..., 4:]
    else:
        (rows,) = session.run(None, {"images": np.ascontiguousarray(planes[:, ::-1])})
        cells, strides, side = [], [], case.checkpoint.canvas[0]
        for stride in (8, 16, 32):
            for row in range(side // stride):
                for column in range(side // stride):
                    cells.append((column, row))
                    strides.append((stride,))
        scale = np.array(strides, np.float32)
        centres = (rows[..., :2] + np.array(cells, np.float32)) * scale
        sizes = exp(rows[..., 2:4]) * scale
        class_scores = rows[..., 4:5] * rows[..., 5:]
    half = sizes * np.float32(0.5)
    return {
        "boxes": np.concatenate([centres - half, centres + half], axis=2),
        "scores": class_scores.max(axis=2),
        "class_ids": class_scores.argmax(axis=2).astype(np.int32),
    }


def exp(values: np.ndarray) -> np.ndarray:
    """ONNX Runtime's, whose last bit is another than numpy's."""
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["y"])],
        "exp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, values.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, values.shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (result,) = session.run(None, {"x": values})
    np.testing.assert_allclose(result, np.exp(values), rtol=1e-6)
    return result


@pytest.mark.parametrize("name", ["noise", IMAGES[0]])
def test_the_bundle_s_graph_gives_what_the_published_graph_gives_with_numpy_around_it(
    case: Case, data: Path, name: str
) -> None:
    canvas = canvas_of(case, data, name)
    found, expected = case.engine.infer(canvas), by_numpy(case, canvas)
    assert tuple(found) == OUTPUTS
    for output in OUTPUTS:
        assert found[output].dtype == expected[output].dtype
        np.testing.assert_array_equal(found[output], expected[output], err_msg=output)


@pytest.mark.parametrize("name", IMAGES)
def test_the_reference_agrees_with_the_served_path_on_real_images(
    case: Case, data: Path, name: str
) -> None:
    encoded = (data / "coco128" / "images" / name).read_bytes()
    placed, canvas = case.bundle.place(decode(encoded, MAX_PIXELS))
    threshold = case.checkpoint.threshold
    native = case.bundle.decode(case.engine.infer(canvas), placed, threshold)
    reference = case.family.reference(case.files, case.checkpoint.canvas, case.checkpoint.labels)
    theirs = reference(encoded, threshold)
    assert len(theirs) > 0
    compared = case.family.criteria.compare(
        native, case.bundle.manifest.labels, theirs, reference.labels
    )
    assert compared.problem is None
    assert (native.height, native.width) == (theirs.height, theirs.width)


def test_the_reference_refuses_what_is_no_image(case: Case) -> None:
    checkpoint = case.checkpoint
    reference = case.family.reference(case.files, checkpoint.canvas, checkpoint.labels)
    for damaged in (b"no image", b""):
        with pytest.raises(DamagedImage):
            reference(damaged, 0.25)


def test_a_real_checkpoint_refuses_another_canvas_and_another_label_count(case: Case) -> None:
    height, width = case.checkpoint.canvas
    labels = case.checkpoint.labels
    for canvas, names in [
        ((height, width // 2), labels),
        ((height, width), labels[:-1]),
        ((height, width), (*labels, "one more")),
    ]:
        with pytest.raises(BundleError, match=r"graph takes .* its family expects"):
            case.family.export(case.files, canvas, names)


LABELS = tuple(f"label {index}" for index in range(11))
ORDERS = {  # how the keys of `names` may stand
    "ascending": list(range(11)),
    "as strings": [0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9],
    "falling": list(range(11))[::-1],
}


def tiny(folder: Path, family_name: str, names: str | None = None) -> dict[str, Path]:
    """A published file of the family's form for a canvas of 32x32 (21 anchors) and 11 labels; its
    output is a part of its input."""
    name, shape = {
        "yolov8": ("output0", [1, 4 + 11, 21]),
        "yolox": ("output", [1, 21, 5 + 11]),
    }[family_name]
    constants = {
        "flat": np.array([1, -1], np.int64),
        "start": np.array([0], np.int64),
        "end": np.array([int(np.prod(shape))], np.int64),
        "axis": np.array([1], np.int64),
        "shape": np.array(shape, np.int64),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["images", "flat"], ["a"]),
            helper.make_node("Slice", ["a", "start", "end", "axis"], ["b"]),
            helper.make_node("Reshape", ["b", "shape"], [name]),
        ],
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=7)
    if names is not None:
        helper.set_model_props(model, {"names": names})
    onnx.save(model, folder / "tiny.onnx")
    return {"tiny.onnx": folder / "tiny.onnx"}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("quoted", [False, True])
def test_labels_of_the_metadata_are_ordered_by_id_as_an_integer(
    tmp_path: Path, order: list[int], quoted: bool
) -> None:
    names = repr({str(key) if quoted else key: LABELS[key] for key in order})
    files = tiny(tmp_path, "yolov8", names)
    assert published_labels(onnx.load(files["tiny.onnx"])) == list(LABELS)
    family("yolov8").export(files, (32, 32), LABELS)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        pytest.param(None, "has no readable `names`", id="missing"),
        pytest.param("{0: 'a', ", "has no readable `names`", id="broken"),
        pytest.param("['a', 'b']", "has no readable `names`", id="a list"),
        pytest.param("{'a': 'b'}", "has no readable `names`", id="ids that are no numbers"),
        pytest.param("__import__('os').getcwd()", "has no readable `names`", id="code"),
        pytest.param("{0: 'a', 2: 'b'}", r"have gaps: \[0, 2\]", id="a gap"),
        pytest.param("{1: 'a', 2: 'b'}", r"have gaps: \[1, 2\]", id="counted from 1"),
        pytest.param("{}", "names its labels", id="none"),
        pytest.param(repr(dict(enumerate(LABELS[::-1]))), "names its labels", id="permuted"),
        pytest.param(
            repr(dict(enumerate([*LABELS[:9], LABELS[10], LABELS[9]]))),
            "tiny.onnx names its labels .* the catalogue says",
            id="two swapped",
        ),
        pytest.param(
            repr(dict(enumerate(["Label 0", *LABELS[1:]]))), "names its labels", id="another case"
        ),
    ],
)
def test_labels_that_are_not_the_published_ones_are_refused(
    tmp_path: Path, names: str | None, sentence: str
) -> None:
    with pytest.raises(BundleError, match=sentence):
        family("yolov8").export(tiny(tmp_path, "yolov8", names), (32, 32), LABELS)


def test_the_real_checkpoint_s_labels_permuted_in_the_catalogue_are_refused(data: Path) -> None:
    checkpoint = catalogue.load("yolov8n-coco")
    files = fetch(checkpoint.source, checkpoint.id, checkpoint.licence, log=ignore)
    swapped = (checkpoint.labels[1], checkpoint.labels[0], *checkpoint.labels[2:])
    with pytest.raises(BundleError, match=r"yolov8n\.onnx names its labels \['person', 'bicycle'"):
        family("yolov8").export(files, checkpoint.canvas, swapped)


@pytest.mark.parametrize("family_name", ["yolov8", "yolox"])
@pytest.mark.parametrize(
    ("canvas", "labels"),
    [((64, 64), LABELS), ((32, 64), LABELS), ((32, 32), LABELS[:10]), ((32, 32), (*LABELS, "x"))],
)
def test_another_canvas_or_label_count_is_refused_with_what_was_expected(
    tmp_path: Path, family_name: str, canvas: tuple[int, int], labels: tuple[str, ...]
) -> None:
    files = tiny(tmp_path, family_name, repr(dict(enumerate(labels))))
    with pytest.raises(BundleError, match=r"graph takes \{'images': \[1, 3, 32, 32\]\}"):
        family(family_name).export(files, canvas, labels)


@pytest.mark.parametrize("family_name", ["yolov8", "yolox"])
@pytest.mark.parametrize("content", [b"", b"not a model"], ids=["empty", "text"])
def test_a_file_that_is_no_onnx_is_refused(
    tmp_path: Path, family_name: str, content: bytes
) -> None:
    (tmp_path / "published.onnx").write_bytes(content)
    with pytest.raises(BundleError):
        family(family_name).export(
            {"published.onnx": tmp_path / "published.onnx"}, (32, 32), LABELS
        )


@pytest.mark.parametrize("family_name", ["yolov8", "yolox"])
def test_only_boxes_of_a_high_enough_score_are_returned_and_at_most_300(family_name: str) -> None:
    scores = np.linspace(0.999, 0.001, 999).astype(np.float32)
    outputs = {
        # apart from each other, so that none suppresses another
        "boxes": (np.arange(999, dtype=np.float32)[:, None] * 3 + [0, 0, 2, 2]).astype(np.float32),
        "scores": scores,
        "class_ids": np.zeros(999, np.int32),
    }
    outputs = {name: array[None] for name, array in outputs.items()}
    placed = family(family_name).place((3000, 3000), (3000, 3000))
    found = family(family_name).decode(outputs, placed, 0.7505)
    assert found.scores.tolist() == scores[:249].tolist()
    assert len(family(family_name).decode(outputs, placed, 0.0)) == 300
    assert len(family(family_name).decode(outputs, placed, 1.0)) == 0


def test_yolov8_returns_a_score_that_is_exactly_the_threshold() -> None:
    outputs = {
        "boxes": np.array([[[0, 0, 9, 9]]], np.float32),
        "scores": np.array([[0.1]], np.float32),
        "class_ids": np.array([[0]], np.int32),
    }
    placed = family("yolov8").place((32, 32), (32, 32))
    assert len(family("yolov8").decode(outputs, placed, 0.1)) == 1


@pytest.mark.parametrize(("family_name", "left"), [("yolov8", 8), ("yolox", 0)])
def test_each_family_letterboxes_as_it_was_trained(family_name: str, left: int) -> None:
    assert family(family_name).place((32, 16), (32, 32)).left == left


def test_every_family_names_the_files_that_decide_its_bundles() -> None:
    assert {"yolov8", "yolox"} <= set(family_names())
    for name in family_names():
        sources_ = [path.name for path in family_sources(name)]
        assert "graph.py" in sources_
        assert "__init__.py" in sources_
