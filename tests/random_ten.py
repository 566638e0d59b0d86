"""The ten checkpoints at real size with seeded random weights, in their published formats.

    python -m tests.random_ten FOLDER [ID ...]     # needs `make export-env reference-env`

Where the published weights cannot be had, this is everything but the weights. FOLDER/ID/ holds a
checkpoint's files; FOLDER/catalogue/ID-random.yaml is its catalogue entry with these weights,
marked `random`, and a few images; FOLDER/serve_config.yaml hosts all. What is there stays.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from models import catalogue
from models.references.environment import reference_python
from qualification.datasets import coco

PROJECT = Path(__file__).resolve().parents[1]
ULTRALYTICS = {
    "yolov5n": "yolov5n-legacy",
    "yolov8n": "yolov8n.yaml",
    "yolov10n": "yolov10n.yaml",
    "yolov10s": "yolov10s.yaml",
    "yolov10x": "yolov10x.yaml",
    "yolo11n": "yolo11n.yaml",
}
TRANSFORMERS = {
    "detr-resnet-50": "detr",
    "yolos-small": "yolos",
    "rtdetr-r50vd": "rt_detr",
    "deformable-detr": "deformable_detr",
}
IDS = (*ULTRALYTICS, *TRANSFORMERS)
IMAGES = 8  # of the dataset's selection: the path is proved by a few as well as by a hundred


def main(folder: Path, ids: list[str]) -> None:
    (folder / "catalogue").mkdir(parents=True, exist_ok=True)
    for checkpoint in ids:
        if not (folder / checkpoint).is_dir():
            print(f"random_ten: making {checkpoint}", file=sys.stderr, flush=True)
            make(checkpoint, folder / checkpoint)
        entry = catalogue_entry(checkpoint, folder / checkpoint)
        path = folder / "catalogue" / f"{entry['id']}.yaml"
        path.write_text(yaml.safe_dump(entry, sort_keys=False))
    (folder / "serve_config.yaml").write_text(yaml.safe_dump(serve_config(ids), sort_keys=False))


def make(checkpoint: str, folder: Path) -> None:
    """The published files under their published names."""
    scratch = folder.with_name(f".{checkpoint}")
    shutil.rmtree(scratch, ignore_errors=True)
    if checkpoint in ULTRALYTICS:
        python = reference_python()  # ultralytics is nowhere else
        arguments = ["tests.models.random_ultralytics", ULTRALYTICS[checkpoint], str(scratch)]
        arguments += [str(image.path) for image in dataset(checkpoint).images]
    else:
        python = Path(sys.executable)
        arguments = ["tests.models.random_transformers", TRANSFORMERS[checkpoint], "real"]
        arguments.append(str(scratch))
    subprocess.run([python, "-m", *arguments], cwd=PROJECT, check=True)
    (scratch / "state.npz").unlink(missing_ok=True)
    for archive in scratch.glob("*.pt"):
        archive.rename(scratch / f"{checkpoint}.pt")
    scratch.rename(folder)


def dataset(checkpoint: str) -> coco.Dataset:
    """The few images that normalisation is fitted to, and that the weights are tried on."""
    source = catalogue.load(checkpoint).dataset
    return coco.load(source.model_copy(update={"images": IMAGES}))


def catalogue_entry(checkpoint: str, folder: Path) -> dict[str, Any]:
    """The published entry with these files in the place of the published ones."""
    entry = yaml.safe_load((catalogue.FOLDER / f"{checkpoint}.yaml").read_bytes())
    del entry["proved"], entry["gaps"]  # of the published weights
    there = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in entry["source"]["files"]
        if (folder / name).is_file()
    }
    return entry | {
        "id": f"{checkpoint}-random",
        "title": f"{checkpoint} with seeded random weights",
        "source": {"type": "local", "folder": str(folder.absolute()), "files": there},
        "licence": "none: random numbers",
        "weights": "random",
        "dataset": entry["dataset"] | {"images": IMAGES},
    }


def serve_config(ids: list[str]) -> dict[str, Any]:
    """The shipped configuration with these models; a fraction of a core each, so that all start."""
    config: dict[str, Any] = yaml.safe_load((PROJECT / "serve_config.yaml").read_bytes())
    front, example = config["applications"]
    models = [
        example
        | {
            "name": checkpoint,
            "args": {"checkpoint": f"{checkpoint}-random", "resources": {"cpus": 0.1}},
        }
        for checkpoint in ids
    ]
    return config | {"applications": [front, *models]}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(IDS))
