"""What is served over HTTP is as accurate as what is published, on real images."""

from pathlib import Path

import pytest

from models.images import decode
from qualification.client import Client
from qualification.datasets import coco
from qualification.evidence import Seen, WireBox, difference, parse_response
from qualification.mean_ap import mean_ap

pytestmark = pytest.mark.slow

LAYOUT_TO_PUBLAYNET = {
    "Title": "title",
    "Section-header": "title",
    "Picture": "figure",
    "List-item": "list",
    "Table": "table",
    "Text": "text",
}


@pytest.mark.parametrize(
    ("checkpoint", "threshold", "expected_map", "expected_map50"),
    [
        # shared/data/README.md states these figures, measured with other code
        ("yolox-nano", 0.01, 0.332, 0.509),
        ("yolov8n-coco", 0.001, 0.457, 0.611),
        ("yolo11n-320", 0.001, 0.342, 0.459),
    ],
)
def test_map_over_http_on_coco(
    application, native, data: Path, checkpoint, threshold, expected_map, expected_map50
) -> None:
    dataset = coco.read("coco128", data / "coco128")
    assert len(dataset.images) == 128
    seen = _served_and_native(application, native, checkpoint, threshold, dataset)
    measured = mean_ap(dataset, seen)
    print(f"{checkpoint}: AP {measured.map:.4f}, AP50 {measured.map50:.4f}")
    assert measured.map == pytest.approx(expected_map, abs=0.005)
    assert measured.map50 == pytest.approx(expected_map50, abs=0.005)


def test_map_of_the_layout_model_on_publaynet(application, native, data: Path) -> None:
    dataset = coco.read("publaynet", data / "publaynet")
    assert len(dataset.images) == 20
    seen = _served_and_native(application, native, "yolov8n-doclaynet", None, dataset)
    measured = mean_ap(dataset, seen, LAYOUT_TO_PUBLAYNET)
    print(f"yolov8n-doclaynet: AP {measured.map:.4f}")
    assert measured.map == pytest.approx(0.671, abs=0.005)


def _served_and_native(application, native, checkpoint: str, threshold, dataset) -> list[Seen]:
    """Detections from HTTP responses, each found equal to the native result of its image."""
    name = f"{checkpoint}-accuracy"
    args = {"checkpoint": checkpoint} | ({} if threshold is None else {"threshold": threshold})
    entries = application.deploy({name: args})
    assert entries[name]["ready"], entries[name]
    client, seen = Client(application.url), []
    for image in dataset.images:
        encoded = image.path.read_bytes()
        status, body = client.infer(name, [encoded])
        assert status == 200, body
        (boxes,) = parse_response(body)
        expected: list[WireBox] = native.detect(name, image.name, encoded).wire_boxes()
        assert difference(expected, boxes) is None
        height, width = decode(encoded, 50_000_000).shape[:2]
        seen.append(Seen.from_wire(image.name, boxes, height, width))
    client.close()
    application.remove(name)
    return seen
