"""A small run folder made by hand, with its dataset: what the page is made from."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import yaml
from PIL import Image

from models import catalogue
from models.detections import Detections
from models.home import data, home
from qualification import saved_run
from qualification.datasets import coco
from qualification.evidence import Seen
from qualification.gates import Gate
from qualification.results import DatasetIdentity, ModelRow, Results
from tests.qualification.test_report import GATES, OWNING_FAILED, campaign, failed_row, good_row

HOSTILE = "<script>alert('&\"')</script>"
HEIGHT, WIDTH = 300, 400
CHECKPOINT = "made"
OBJECTS = {  # image -> category and xyxy of each object
    "0.jpg": [("person", (40, 40, 140, 240)), ("dog", (200, 100, 360, 260))],
    "1.jpg": [("person", (60, 60, 160, 260))],
    "2.jpg": [("dog", (100, 50, 300, 200)), ("person", (10, 10, 60, 120))],
    "3.jpg": [("dog", (30, 30, 230, 230))],
}
Box = tuple[str, tuple[float, float, float, float], float]


def dataset() -> DatasetIdentity:
    """Four images with ground truth under DETSERVE_DATA, and a checkpoint that names them."""
    folder = data() / "made"
    (folder / "images").mkdir(parents=True)
    generator = np.random.default_rng(0)
    names = ["person", "dog"]
    annotations: list[dict[str, Any]] = []
    for number, (image, objects) in enumerate(OBJECTS.items(), 1):
        noise = generator.integers(0, 255, (HEIGHT // 20, WIDTH // 20, 3), np.uint8)
        Image.fromarray(noise).resize((WIDTH, HEIGHT)).save(folder / "images" / image)
        for category, (x_min, y_min, x_max, y_max) in objects:
            width, height = x_max - x_min, y_max - y_min
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": names.index(category) + 1,
                    "bbox": [x_min, y_min, width, height],
                    "area": width * height,
                    "iscrowd": 0,
                }
            )
    document = {
        "images": [
            {"id": number, "file_name": image, "width": WIDTH, "height": HEIGHT}
            for number, image in enumerate(OBJECTS, 1)
        ],
        "categories": [{"id": number, "name": name} for number, name in enumerate(names, 1)],
        "annotations": annotations,
    }
    (folder / "instances.json").write_bytes(orjson.dumps(document))
    entry = yaml.safe_load((catalogue.FOLDER / "yolox-nano.yaml").read_text())
    entry |= {"id": CHECKPOINT, "dataset": {"type": "coco", "folder": "made"}}
    (home() / "catalogue").mkdir(parents=True)
    (home() / "catalogue" / f"{CHECKPOINT}.yaml").write_text(yaml.safe_dump(entry))
    loaded = coco.load(catalogue.load(CHECKPOINT).dataset)
    return DatasetIdentity(name=loaded.name, digest=loaded.digest)


def seen(image: str, found: Sequence[Box]) -> Seen:
    """found: label, xyxy and score, by falling score."""
    labels = [label for label, _, _ in found]
    ids = [sorted(set(labels)).index(label) for label in labels]
    return Seen(
        image,
        Detections(
            np.array([box for _, box, _ in found], np.float32).reshape(-1, 4),
            np.array([score for _, _, score in found], np.float32),
            np.array(ids, np.int32),
            HEIGHT,
            WIDTH,
        ),
        labels,
    )


def exact(image: str) -> list[Box]:
    """Detections that are the ground truth."""
    return [(label, box, 0.9 - 0.1 * rank) for rank, (label, box) in enumerate(OBJECTS[image])]


def good_native() -> list[Seen]:
    """Right but for a missed person and an extra box of a label that markup could hide in."""
    found = {image: exact(image) for image in OBJECTS}
    found["2.jpg"] = [*found["2.jpg"][:1], ("person", (300, 200, 390, 290), 0.4)]
    found["3.jpg"] = [*found["3.jpg"], (HOSTILE, (5, 5, 25, 25), 0.3)]
    return [seen(image, boxes) for image, boxes in found.items()]


def save(folder: Path, stage: str, value: dict[str, Any], gates: Sequence[Gate] = ()) -> None:
    """As the driver writes a stage."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"stage": stage, "key": "k", "seconds": 1.0, "kept": False, "data": value}
    document["gates"] = [gate.model_dump() for gate in gates]
    (folder / f"{stage}.json").write_bytes(orjson.dumps(document))


def detections(folder: Path, native: Sequence[Seen], reference: Sequence[Seen]) -> None:
    save(folder, "native", {"seen": [one.to_json() for one in native]})
    save(folder, "reference", {"seen": [one.to_json() for one in reference]})


def aiperf(requests: int = 50, latency_ms: float = 20, failed: int = 0) -> dict[str, Any]:
    """An AIPerf run, five warm-up requests first; request k takes `latency_ms` + k / 10."""
    rows, records = [], {}
    for number in range(-5, requests):
        name, start = f"id{number}", 10**12 + (number + 5) * 30_000_000
        client = latency_ms + max(number, 0) / 10
        status = 503 if 0 <= number < failed else 200
        rows.append(
            {
                "request_id": name,
                "phase": "warmup" if number < 0 else "profiling",
                "image": "0.jpg",
                "status": status,
                "body": "{}",
                "latency_ms": client,
                "start_ns": start,
                "end_ns": start + round(client * 1e6),
            }
        )
        task = {
            "queue_ms": 1.5,
            "task_call_wall_ms": client - 5,
            "stages_ms": {"decode": 2.0, "preprocess": 0.5, "engine": client - 8, "postprocess": 0},
        }
        records[name] = [{"status": status, "handler_ms": client - 2, "tasks": [task]}]
    return {
        "command": ["/some/where/aiperf", "profile", "--model", "good"],
        "expected": requests + 5,
        "rows": rows,
        "records": records,
        "problems": [],
    }


def write(folder: Path) -> Results:
    """A run of three models: one that passed, with a load sweep; one whose owning case failed; one
    that was not served."""
    identity = dataset()
    own = {"checkpoint": CHECKPOINT, "family": "yolox", "dataset": identity}
    checkpoint = catalogue.load(CHECKPOINT)
    loaded = coco.load(checkpoint.dataset)
    saved_run.write_dataset(folder, loaded)
    for model in ("good", "bad"):
        about = {"checkpoint": saved_run.without_paths(checkpoint), "dataset": loaded.digest}
        save(folder / model, "bundle", about)
    right = [seen(image, exact(image)) for image in OBJECTS]
    detections(folder / "good", good_native(), right[:2] + good_native()[2:])
    save(folder / "good", "aiperf", aiperf())
    for load, milliseconds in ((1, 20), (2, 25), (16, 90)):
        passed = GATES[6:9]
        save(folder / "good", f"aiperf-c{load}", aiperf(20, milliseconds), passed)
    wrong = Gate(
        name="aiperf-responses", passed=False, measured={}, needed="all", detail=f"3 {HOSTILE}"
    )
    save(folder / "good", "aiperf-r0.5", aiperf(4, 20, failed=4), [*GATES[6:7], wrong])
    shifted = [seen(one, [(n, (b[0] + 9, *b[1:]), s) for n, b, s in exact(one)]) for one in OBJECTS]
    detections(folder / "bad", shifted, right)
    unserved = Gate(
        name="bundle", passed=False, measured={}, needed="a served bundle", detail=HOSTILE
    )
    rows: list[ModelRow] = [
        good_row(**own),
        failed_row(GATES[0], OWNING_FAILED).model_copy(update=own),
        failed_row(unserved).model_copy(
            update={
                "model": f"gone{HOSTILE.replace('/', '')}",
                "reason": f"gate bundle: {HOSTILE}",
                "not_run": dict.fromkeys(("native", "dataset", "aiperf"), "an earlier gate failed"),
            }
        ),
    ]
    results = campaign(*rows)
    (folder / "results.json").write_text(results.model_dump_json())
    return results


def without_dataset() -> None:
    shutil.rmtree(data() / "made")
