"""DETR, YOLOS, RT-DETR and Deformable DETR against transformers' own pipeline, on small networks.

The networks are small in width and depth and of the published architecture; real sizes are in
test_transformers_real.py. Weights are random: nothing here says how well a checkpoint detects.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from models.errors import BundleError, DamagedImage
from models.family import family
from models.labels import COCO80, COCO91
from models.queries import detections_of
from models.resize import Resized
from models.transformers_checkpoint import published_config
from models.transformers_export import check_signature
from models.transformers_preprocessing import check_preprocessing
from tests.models.transformers_cases import (
    CANVASES,
    LABELS,
    against_published,
    checkpoint,
    in_torch,
    needs_torch,
    pictures,
)

KINDS = ["detr", "yolos", "rt_detr", "deformable_detr", "deformable_detr-refine"]

Made = Callable[[str], Mapping[str, Path]]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Made:
    """The files of a small random checkpoint of that kind."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return lambda kind: checkpoint(kind, "small", folder)


@pytest.fixture(scope="session")
def exported(made: Made) -> Callable[[str], onnx.ModelProto]:
    graphs: dict[str, onnx.ModelProto] = {}

    def export(kind: str) -> onnx.ModelProto:
        name = kind.partition("-")[0]
        if kind not in graphs:
            graphs[kind] = family(name).export(made(kind), CANVASES[name], LABELS[name])
        return graphs[kind]

    return export


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_detections_equal_transformers_own_pipeline_on_every_shape_of_image(
    kind: str, made: Made, exported: Callable[[str], onnx.ModelProto], tmp_path: Path
) -> None:
    onnx.save(exported(kind), tmp_path / "engine.onnx")
    found = against_published(kind.partition("-")[0], made(kind), tmp_path / "engine.onnx")
    assert found.problems == {}
    assert 40 < found.kept < found.queries
    assert len(found.classes) > 5  # else a wrong class could not be seen


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_have_the_contracts_signature_and_only_what_tensorrt_parses(
    kind: str, exported: Callable[[str], onnx.ModelProto]
) -> None:
    graph = exported(kind)
    check_signature(graph, CANVASES[kind.partition("-")[0]])
    onnx.checker.check_model(graph)
    outputs = {
        value.name: (
            value.type.tensor_type.elem_type,
            [dim.dim_value for dim in value.type.tensor_type.shape.dim],
        )
        for value in graph.graph.output
    }
    queries = outputs["scores"][1][1]
    assert outputs == {
        "boxes": (onnx.TensorProto.FLOAT, [1, queries, 4]),
        "scores": (onnx.TensorProto.FLOAT, [1, queries]),
        "class_ids": (onnx.TensorProto.INT32, [1, queries]),
    }
    kinds = {node.op_type for node in graph.graph.node}
    # what raw exports have and TensorRT has not, or what a mask of ones leaves behind
    assert not kinds & {"If", "Loop", "NonZero", "ScatterElements", "ScatterND", "CumSum", "IsNaN"}
    assert "GridSample" not in kinds  # TensorRT releases get it wrong in silence
    cubic = [
        node
        for node in graph.graph.node
        for attribute in node.attribute
        if attribute.name == "mode" and attribute.s == b"cubic"
    ]
    doubles = [t for t in graph.graph.initializer if t.data_type == onnx.TensorProto.DOUBLE]
    assert (cubic, doubles) == ([], [])


@needs_torch
@pytest.mark.slow
def test_deformable_attention_samples_as_torch_does_inside_on_and_beyond_the_border() -> None:
    gaps = json.loads(in_torch("-m", "tests.models.compare_sampling"))
    assert len(gaps) == 6
    assert max(gaps.values()) < 1e-12, gaps


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["detr", "deformable_detr"])
def test_the_key_names_of_the_first_published_files_load_the_same_weights(
    kind: str, made: Made
) -> None:
    plain = made(f"{kind}-timm")
    folder = plain["config.json"].parent
    printed = in_torch(
        "-c",
        """if True:
        import json, sys, torch
        from pathlib import Path
        from models.transformers_checkpoint import load
        states = []
        for folder in map(Path, sys.argv[1:]):
            config = json.loads((folder / "config.json").read_text())
            states.append(load(config, folder / "model.safetensors").state_dict())
        one, other = states
        print(len(one), all(torch.equal(one[name], other[name]) for name in one | other))
        """,
        str(folder),
        str(folder / "timm"),
    )
    count, equal = printed.split()[-2:]
    assert int(count) > 300
    assert equal == "True"


# as of 2022, and as transformers writes it now
OLD = {"feature_extractor_type": "DetrFeatureExtractor", "format": "coco_detection", "size": 800}
OLD |= {"max_size": 1333, "do_normalize": True, "do_resize": True}
OLD |= {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
KEEPING: dict[str, Any] = {"size": {"shortest_edge": 800, "longest_edge": 1333}}
STRETCHING: dict[str, Any] = {"size": {"height": 640, "width": 640}, "do_normalize": False}


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "published", "changes"),
    [
        ("detr", OLD, False),
        ("detr", KEEPING, False),
        ("detr", {"size": {"shortest_edge": 400, "longest_edge": 666}}, True),
        ("rt_detr", STRETCHING, False),
        ("rt_detr", STRETCHING | {"do_normalize": True}, True),
        ("yolos", OLD, False),  # its size is the configuration's
        ("yolos", OLD | {"image_std": [0.5, 0.5, 0.5]}, True),
    ],
)
def test_the_reference_follows_the_published_preprocessing(
    kind: str, published: dict[str, Any], changes: bool, made: Made, tmp_path: Path
) -> None:
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps(published))
    owner, files, labels = family(kind), made(kind), LABELS[kind]
    plain = owner.reference(files, CANVASES[kind], labels)
    following = owner.reference(files | {file.name: file}, CANVASES[kind], labels)
    image = pictures()["landscape"]
    one, other = (reference(image, 0.01) for reference in (plain, following))
    assert len(one) > 5
    same = one.scores.tolist() == other.scores.tolist() and np.array_equal(one.boxes, other.boxes)
    assert same is not changes


@needs_torch
@pytest.mark.slow
def test_the_reference_refuses_what_is_no_image_and_goes_on(made: Made) -> None:
    reference = family("yolos").reference(made("yolos"), CANVASES["yolos"], COCO91)
    with pytest.raises(DamagedImage):
        reference(b"no image", 0.5)
    assert reference(pictures()["tiny"], 0.5).width == 32


def damage(files: Mapping[str, Path], folder: Path, how: str) -> dict[str, Path]:
    """A copy of the checkpoint with one thing wrong."""
    copies = {name: Path(shutil.copy(path, folder)) for name, path in files.items()}
    weights = copies["model.safetensors"]
    whole = weights.read_bytes()
    if how == "truncated":
        weights.write_bytes(whole[: len(whole) // 2])
    elif how == "not safetensors":
        weights.write_bytes(b"PK\x03\x04" + whole[4:])
    else:
        length = int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8 : 8 + length])
        name = next(name for name in header if "query_position_embeddings" in name)
        if how == "renamed":
            header[name.replace("query", "key")] = header.pop(name)
        elif how == "other shape":
            header[name]["shape"] = header[name]["shape"][::-1]
        packed = json.dumps(header).encode()
        weights.write_bytes(len(packed).to_bytes(8, "little") + packed + whole[8 + length :])
    return copies


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("truncated", "model.safetensors is damaged or truncated"),
        ("not safetensors", "model.safetensors is damaged or truncated"),
        ("renamed", "model.safetensors has no weights for model.query_position_embeddings.weight"),
        ("other shape", "has other shapes for model.query_position_embeddings.weight"),
    ],
)
def test_damaged_weights_are_one_clear_sentence(
    how: str, sentence: str, made: Made, tmp_path: Path
) -> None:
    files = damage(made("detr"), tmp_path, how)
    with pytest.raises(BundleError, match=sentence) as raised:
        family("detr").export(files, None, COCO91)
    assert "\n" not in str(raised.value)


@needs_torch
@pytest.mark.slow
def test_a_size_frozen_behind_symbolic_dimensions_fails_the_export(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the past bug: the exporter pins feature-map sizes at the traced size, without a warning
    source = Path("models/families/deformable_detr/network.py").read_text()
    frozen = source.replace("torch.tensor(side, dtype", "torch.tensor(float(side), dtype")
    assert frozen != source
    (tmp_path / "frozen_network.py").write_text(frozen)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    from models.transformers_export import export_transformers

    with pytest.raises(BundleError, match="differ from the published model's by"):
        export_transformers(
            made("deformable_detr"),
            None,
            COCO91,
            model_type="deformable_detr",
            network="frozen_network",
            size=None,
            imagenet=True,
        )


CONFIG: dict[str, Any] = {
    "model_type": "detr",
    "id2label": {str(i): "N/A" if n.startswith("N/A") else n for i, n in enumerate(COCO91)},
}
SWAPPED = CONFIG["id2label"] | {"1": "bicycle", "2": "person"}


@pytest.mark.parametrize(
    ("config", "labels", "sentence"),
    [
        (CONFIG, COCO91, None),
        (CONFIG | {"model_type": "yolos"}, COCO91, "'yolos'; the family expects 'detr'"),
        (CONFIG, COCO80, "names 91 labels with ids 0 to 90; the catalogue has 80"),
        (CONFIG | {"id2label": SWAPPED}, COCO91, "class 1 'bicycle'; the catalogue says 'person'"),
        ({"model_type": "detr"}, COCO91, "no readable `id2label`"),
        (
            CONFIG | {"id2label": dict(enumerate(["person", *["N/A"] * 90]))},
            COCO91,
            "class 0 'person'; the catalogue says 'N/A 0'",
        ),
        ([], COCO91, "not a readable JSON object"),
    ],
)
def test_a_config_that_is_not_the_familys_is_one_clear_sentence(
    config: Any, labels: tuple[str, ...], sentence: str | None, tmp_path: Path
) -> None:
    files = {name: tmp_path / name for name in ("config.json", "model.safetensors")}
    files["config.json"].write_text(json.dumps(config))
    if sentence is None:
        assert published_config(files, "detr", labels) == json.loads(json.dumps(config))
        return
    with pytest.raises(BundleError, match=sentence):
        published_config(files, "detr", labels)


@pytest.mark.parametrize(
    ("published", "of", "sentence"),
    [
        (OLD, "detr", None),
        (KEEPING, "detr", None),
        (OLD | KEEPING, "detr", None),
        ({"size": 800}, "detr", None),  # transformers' limit is 1333 then
        ({}, "detr", None),
        (STRETCHING, "rt_detr", None),
        (STRETCHING | {"rescale_factor": 0.00392156862745098}, "rt_detr", None),
        (OLD | {"size": 512}, "yolos", None),
        (OLD | {"max_size": 1344}, "detr", "says size .*1344.*; the family serves .*1333"),
        ({"size": {"shortest_edge": 800}}, "detr", "says size {'shortest_edge': 800}; the family"),
        ({"size": {"height": 800, "width": 800}}, "detr", "says size .*'height': 800"),
        (KEEPING, "rt_detr", "says size .*1333.*; the family serves .*640"),
        ({"size": {"height": 320, "width": 640}}, "rt_detr", "says size .*320"),
        (STRETCHING | {"do_normalize": True}, "rt_detr", "says do_normalize True; .*serves False"),
        (OLD | {"image_mean": [0.5, 0.5, 0.5]}, "detr", r"says image_mean \[0.5, 0.5, 0.5\]; the"),
        (OLD | {"image_std": [0.229]}, "yolos", r"says image_std \[0.229\]; the family serves"),
        (
            OLD | {"rescale_factor": 1.0},
            "detr",
            "says rescale_factor 1.0; .*serves 0.0039",
        ),
        (OLD | {"resample": 3}, "detr", "says resample 3; the family serves 2"),
        (OLD | {"do_resize": False}, "detr", "says do_resize False; the family serves True"),
        (OLD | {"pad_size": {"height": 9, "width": 9}}, "detr", "says pad_size .*9"),
        ([], "detr", "is not a readable JSON object"),
    ],
)
def test_preprocessing_that_was_published_otherwise_than_it_is_served_is_one_clear_sentence(
    published: Any, of: str, sentence: str | None, tmp_path: Path
) -> None:
    files = {"preprocessor_config.json": tmp_path / "preprocessor_config.json"}
    files["preprocessor_config.json"].write_text(json.dumps(published))
    sizes = {"detr": KEEPING["size"], "rt_detr": STRETCHING["size"], "yolos": None}

    def check() -> None:
        check_preprocessing(files, size=sizes[of], imagenet=of != "rt_detr")

    if sentence is None:
        check()
        return
    with pytest.raises(BundleError, match=f"^preprocessor_config.json {sentence}"):
        check()


@pytest.mark.parametrize(
    ("name", "canvas", "published"),
    [
        ("detr", None, {"size": 600}),
        ("deformable_detr", None, {"size": 600}),
        ("rt_detr", (640, 640), {"size": {"height": 320, "width": 320}}),
        ("yolos", (512, 864), {"do_normalize": False}),
    ],
)
def test_no_family_exports_what_was_published_with_other_preprocessing(
    name: str, canvas: tuple[int, int] | None, published: dict[str, Any], tmp_path: Path
) -> None:
    names = ("config.json", "model.safetensors", "preprocessor_config.json")
    files = {each: tmp_path / each for each in names}
    labels = {i: "N/A" if n.startswith("N/A") else n for i, n in enumerate(LABELS[name])}
    config = {"model_type": name, "id2label": labels, "image_size": [512, 864]}
    files["config.json"].write_text(json.dumps(config))
    files["preprocessor_config.json"].write_text(json.dumps(published))
    with pytest.raises(BundleError, match=r"^preprocessor_config\.json says .*; the family serves"):
        family(name).export(files, canvas, LABELS[name])


@pytest.mark.parametrize(
    ("image_size", "sentence"),
    [
        ([800, 1344], r"says image_size \[800, 1344\]; the catalogue says \[512, 864\]"),
        (512, "says image_size 512; it must be height and width"),
        (None, "says image_size None; it must be height and width"),
    ],
)
def test_yolos_is_served_at_the_size_of_its_configuration(
    image_size: Any, sentence: str, tmp_path: Path
) -> None:
    files = {name: tmp_path / name for name in ("config.json", "model.safetensors")}
    config = CONFIG | {"model_type": "yolos", "image_size": image_size}
    files["config.json"].write_text(json.dumps(config))
    with pytest.raises(BundleError, match=f"^config.json {sentence}"):
        family("yolos").export(files, (512, 864), COCO91)


def test_a_directory_without_weights_says_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no model.safetensors; it has \['config.json'\]"):
        published_config({"config.json": tmp_path / "config.json"}, "detr", COCO91)


def test_voc_names_in_a_published_list_are_understood(tmp_path: Path) -> None:
    voc = {"couch": "sofa", "tv": "tvmonitor", "motorcycle": "motorbike"}
    config = {"model_type": "rt_detr"}
    config |= {"id2label": {i: voc.get(n, n) for i, n in enumerate(COCO80)}}  # type: ignore
    files = {name: tmp_path / name for name in ("config.json", "model.safetensors")}
    files["config.json"].write_text(json.dumps(config))
    published_config(files, "rt_detr", COCO80)


def test_the_sparse_labels_are_cocos_category_ids() -> None:
    assert len(COCO91) == len(set(COCO91)) == 91
    assert [label for label in COCO91 if not label.startswith("N/A")] == list(COCO80)
    known = {0: "N/A 0", 1: "person", 11: "fire hydrant", 12: "N/A 12", 13: "stop sign"}
    known |= {44: "bottle", 46: "wine glass", 62: "chair", 72: "tv", 90: "toothbrush"}
    assert {index: COCO91[index] for index in known} == known


@pytest.fixture
def outputs() -> dict[str, np.ndarray]:
    return {
        "boxes": np.array([[[0, 0, 0.5, 0.5], [0, 0, 1, 1], [0.5, 0, 1.2, 1]]], np.float32),
        "scores": np.array([[0.7, 0.5, 0.9]], np.float32),
        "class_ids": np.array([[3, 1, 2]], np.int32),
    }


def test_queries_above_the_threshold_come_sorted_in_source_pixels(
    outputs: dict[str, np.ndarray],
) -> None:
    found = detections_of(outputs, Resized.stretched((100, 200), (512, 864)), 0.5)
    assert found.class_ids.tolist() == [2, 3]  # 0.5 itself is not above 0.5
    assert found.boxes.tolist() == [[100, 0, 200, 100], [0, 0, 100, 50]]


@pytest.mark.parametrize("name", ["detr", "deformable_detr"])
def test_families_of_dynamic_size_refuse_a_canvas(name: str) -> None:
    with pytest.raises(BundleError, match="leave `canvas` out"):
        family(name).place((480, 640), (1333, 1333))


@pytest.mark.parametrize("name", ["yolos", "rt_detr"])
def test_families_of_fixed_size_ask_for_their_canvas(name: str) -> None:
    with pytest.raises(BundleError, match="must give `canvas`"):
        family(name).export({}, None, COCO91)
