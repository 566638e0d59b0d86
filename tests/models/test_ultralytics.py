"""The YOLO families against ultralytics' own model, letterbox and NMS, on real images.

The checkpoints are seeded random weights in the published formats (random_ultralytics.py); they
need torch and ultralytics, each in a process of its own, and the tests are skipped without them.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.engines.onnxruntime_cpu import OnnxRuntimeEngine
from models.errors import BundleError, DamagedImage, SourceError
from models.families import yolov10
from models.family import family, family_sources
from models.graph import GraphEditor
from models.labels import COCO80
from models.references.environment import reference_python
from models.ultralytics.archive import read_archive
from models.ultralytics.plan import plan_of

CANVAS = (640, 640)
Made = Callable[[str], Mapping[str, Path]]

needs_torch = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("torch", "onnxscript")))
    or (reference_python() == Path(sys.executable) and not importlib.util.find_spec("ultralytics")),
    reason="no torch and onnxscript here (make export-env), or no ultralytics (make reference-env)",
)


@pytest.fixture(scope="module")
def images(data: Path) -> list[bytes]:
    """Landscape, portrait, square, tiny and enlarged images, encoded."""
    paths = sorted((data / "coco128" / "images").glob("*.jpg"))[:6]
    found = [path.read_bytes() for path in paths]
    pixels = cv2.imread(str(paths[0]))
    for changed in (pixels[:400, :400], cv2.resize(pixels, (48, 36))):
        found.append(cv2.imencode(".png", changed)[1].tobytes())
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Made:
    """The published files of a random checkpoint, made once: name of its yaml (and after an @,
    what of it is changed) -> files."""
    known: dict[str, dict[str, Path]] = {}

    def make(name: str) -> Mapping[str, Path]:
        if name not in known:
            folder = tmp_path_factory.mktemp("made")
            paths = sorted((data / "coco128" / "images").glob("*.jpg"))[:6]
            command = [reference_python(), "-m", "tests.models.random_ultralytics", name, folder]
            done = subprocess.run([*command, *paths], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            known[name] = {path.name: path for path in folder.iterdir()}
        return {key: path for key, path in known[name].items() if key != "state.npz"}

    make.state = lambda name: np.load(known[name]["state.npz"])  # type: ignore[attr-defined]
    return make


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "of", "count"),
    [
        ("yolov5n-legacy", "yolov5", 8),
        ("yolov8n.yaml", "yolov8", 8),
        ("yolo11n.yaml", "yolo11", 8),
        ("yolov10n.yaml", "yolov10", 8),
        ("yolov10s.yaml", "yolov10", 2),
        ("yolov10x.yaml", "yolov10", 2),
    ],
)
def test_a_published_checkpoint_detects_what_the_published_pipeline_detects(
    name: str, of: str, count: int, made: Made, images: list[bytes], tmp_path: Path
) -> None:
    owner, files = family(of), made(name)
    onnx.save(owner.export(files, CANVAS, COCO80), tmp_path / "engine.onnx")
    engine = OnnxRuntimeEngine(tmp_path / "engine.onnx", threads=2)
    reference = owner.reference(files, CANVAS, COCO80)
    worst = {"score": 0.0, "side_px": 0.0}
    boxes = []
    for image in images[:count]:
        pixels = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
        placed = owner.place(pixels.shape[:2], CANVAS)
        outputs = engine.infer(placed.paint(np.ascontiguousarray(pixels))[None])
        native, published = owner.decode(outputs, placed, 0.25), reference(image, 0.25)
        compared = owner.criteria.compare(native, COCO80, published, reference.labels)
        assert compared.problem is None, compared
        worst = {key: max(worst[key], compared.differences[key]) for key in worst}
        boxes.append(len(native))
    print(f"{name}: boxes {boxes}, worst {worst}")
    assert sum(boxes) > 10, "the random weights cross the threshold too seldom"
    # far inside the gates (0.005, 1 px): what float32 leaves of two orders of summation
    assert worst["score"] < 1e-3
    assert worst["side_px"] < 0.1


@needs_torch
@pytest.mark.slow
def test_the_reference_follows_the_canvas_and_goes_on_after_a_damaged_image(
    made: Made, images: list[bytes], tmp_path: Path
) -> None:
    owner, files, canvas = family("yolov8"), made("yolov8n.yaml"), (320, 480)
    onnx.save(owner.export(files, canvas, COCO80), tmp_path / "engine.onnx")
    engine = OnnxRuntimeEngine(tmp_path / "engine.onnx", threads=2)
    reference = owner.reference(files, canvas, COCO80)
    with pytest.raises(DamagedImage):
        reference(b"no image", 0.25)
    found = 0
    for image in images[:3]:
        pixels = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
        placed = owner.place(pixels.shape[:2], canvas)
        native = owner.decode(engine.infer(placed.paint(pixels)[None]), placed, 0.1)
        published = reference(image, 0.1)
        compared = owner.criteria.compare(native, COCO80, published, reference.labels)
        assert compared.problem is None, compared
        found += len(native)
    assert found > 10


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolov5n-legacy", "yolov8n.yaml", "yolo11n.yaml"])
def test_an_archive_has_the_state_dict_that_torch_reads(name: str, made: Made) -> None:
    (path,) = made(name).values()
    archive, expected = read_archive(path), made.state(name)  # type: ignore[attr-defined]
    assert sorted(archive.state) == sorted(expected.files)
    for key in expected.files:
        np.testing.assert_array_equal(archive.state[key].astype(np.float32), expected[key], key)


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "of", "sentence"),
    [
        ("yolov5n-legacy", "yolov8", "its head predicts anchors"),
        ("yolov8n.yaml", "yolov5", "its head predicts distances"),
        ("yolov8n.yaml", "yolo11", "its blocks are C2f"),
        ("yolo11n.yaml", "yolov8", "its blocks are C2PSA, C3k2"),
    ],
)
def test_an_archive_of_another_family_is_refused(
    name: str, of: str, sentence: str, made: Made
) -> None:
    with pytest.raises(BundleError, match=sentence):
        family(of).export(made(name), CANVAS, COCO80)


@needs_torch
@pytest.mark.slow
def test_weights_of_another_variant_are_refused_naming_a_few(made: Made, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"yaml": yolov10.architecture_of(width=32, classes=80)}))
    files = {"model.safetensors": made("yolov10n.yaml")["model.safetensors"], "config.json": config}
    with pytest.raises(BundleError, match=r"missing \(model\..*unexpected \(.*another shape \("):
        family("yolov10").export(files, CANVAS, COCO80)


@needs_torch
@pytest.mark.slow
def test_a_truncated_safetensors_is_one_sentence(made: Made, tmp_path: Path) -> None:
    cut = tmp_path / "model.safetensors"
    cut.write_bytes(made("yolov10n.yaml")["model.safetensors"].read_bytes()[:1_000_000])
    with pytest.raises(SourceError, match=r"^model\.safetensors is not a whole safetensors file"):
        family("yolov10").export({"model.safetensors": cut}, CANVAS, COCO80)


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ("eps", r"\(BatchNorm2d\) was published with eps = 1e-05, .* 0\.001$"),
        ("add", r"\(Bottleneck\) was published with add = True, .* has False$"),
        ("act", r"with the activation ReLU, .* has SiLU$"),
    ],
    ids=["normalisation epsilon", "residual in the neck", "activation"],
)
def test_a_network_that_is_not_the_published_one_is_refused(
    changed: str, sentence: str, made: Made
) -> None:
    with pytest.raises(BundleError, match=sentence):
        family("yolov8").export(made(f"yolov8n.yaml@{changed}"), CANVAS, COCO80)


@needs_torch
@pytest.mark.slow
def test_labels_other_than_the_catalogues_are_refused(made: Made) -> None:
    with pytest.raises(BundleError, match="names its labels"):
        family("yolov8").export(made("yolov8n.yaml"), CANVAS, COCO80[::-1])


@pytest.mark.parametrize("canvas", [(640, 650), (16, 640)])
def test_a_canvas_that_the_strides_do_not_divide_is_refused(
    canvas: tuple[int, int], tmp_path: Path
) -> None:
    from models.ultralytics.convert import converted

    with (
        pytest.raises(BundleError, match=r"must be multiples of 32$"),
        converted(tmp_path / "absent.pt", canvas),
    ):
        pass


def test_the_one_to_one_selection_is_anchor_major(tmp_path: Path) -> None:
    """Three anchors of two classes: one anchor appears twice, and no class and anchor swap."""
    rows = np.array(
        [[0, 0, 1, 1, 0.1, 0.9], [1, 1, 2, 2, 0.8, 0.7], [2, 2, 3, 3, 0.3, 0.2]], np.float32
    )[None]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["rows"], ["output0"])],
        "selection",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 3, 6])],
        [numpy_helper.from_array(rows, "rows")],
    )
    path = tmp_path / "rows.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    editor = GraphEditor(path)
    editor.take_uint8(swap_red_and_blue=False, divide_by=255)
    onnx.save(yolov10._select(editor, "output0", anchors=3, classes=2), path)
    outputs = OnnxRuntimeEngine(path, threads=1).infer(np.zeros((1, 32, 32, 3), np.uint8))
    np.testing.assert_allclose(outputs["scores"], [[0.9, 0.8, 0.7]])
    np.testing.assert_array_equal(outputs["class_ids"], [[1, 0, 1]])
    np.testing.assert_array_equal(outputs["boxes"][0][:, 0], [0, 1, 1])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"backbone": [[-1, 1, "Focus", [64, 3]]]}, "there is no block 'Focus'"),
        ({"head": [[-1, 1, "Segment", ["nc"]]]}, "there is no head 'Segment'"),
        ({"head": 3}, "not readable"),
        ({"backbone": [[4, 1, "Conv", [64, 3]]]}, "reads a later layer"),
        ({"reg_max": 1}, "reg_max 1 is not supported"),
    ],
)
def test_an_architecture_that_cannot_be_built_is_one_sentence(
    change: dict[str, object], sentence: str
) -> None:
    architecture = yolov10.architecture_of(width=16, classes=80) | change
    with pytest.raises(BundleError, match=sentence):
        plan_of(architecture)


def test_a_variant_without_a_published_architecture_is_refused() -> None:
    with pytest.raises(BundleError, match="first convolution has 48 channels"):
        yolov10.architecture_of(width=48, classes=80)


def test_a_change_to_the_shared_library_changes_what_a_bundle_is_built_from() -> None:
    names = {path.parent.name + "/" + path.name for path in family_sources("yolov10")}
    assert {"yolov10/architectures.py", "ultralytics/network.py", "models/graph.py"} <= names
    assert "ultralytics/network.py" not in {
        path.parent.name + "/" + path.name for path in family_sources("yolox")
    }


@pytest.mark.slow
def test_yolo11n_at_320_has_the_accuracy_that_was_measured_of_its_file(
    data: Path, tmp_path: Path
) -> None:
    """AP 0.342 and AP50 0.459 at score >= 0.001 on the 128 images (README of the test data)."""
    pytest.importorskip("pycocotools")
    from models import catalogue
    from models.fetch import fetch
    from qualification.datasets import coco
    from qualification.evidence import Seen
    from qualification.mean_ap import mean_ap

    checkpoint = catalogue.load("yolo11n-320")
    owner = family(checkpoint.family)
    files = fetch(checkpoint.source, checkpoint.id, checkpoint.licence, log=print)
    graph = owner.export(files, checkpoint.canvas, checkpoint.labels)
    onnx.save(graph, tmp_path / "engine.onnx")
    engine = OnnxRuntimeEngine(tmp_path / "engine.onnx", threads=2)
    dataset = coco.read("coco128", data / "coco128")
    seen = []
    for image in dataset.images:
        pixels = cv2.imdecode(np.frombuffer(image.path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
        placed = owner.place(pixels.shape[:2], checkpoint.canvas)
        outputs = engine.infer(placed.paint(np.ascontiguousarray(pixels[..., ::-1]))[None])
        found = owner.decode(outputs, placed, 0.001)
        seen.append(Seen(image.name, found, [checkpoint.labels[id_] for id_ in found.class_ids]))
    measured = mean_ap(dataset, seen)
    assert len(seen) == 128
    assert measured.map == pytest.approx(0.342, abs=0.0006)
    assert measured.map50 == pytest.approx(0.459, abs=0.0006)
