"""A run's folder read again: what judging needs, without the models, their images or a server.

Whoever receives a run can apply its gates on another machine, so the ground truth and what the
checkpoint's file said lie in the folder beside the evidence.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from models.catalogue import Checkpoint
from models.errors import QualificationError
from models.family import family
from qualification import stages
from qualification.datasets.coco import Dataset, DatasetImage
from qualification.results import Results
from qualification.run_folder import FINISHED
from qualification.stages import STAGES, StageResult
from qualification.target import Target

DATASETS = "datasets"


@dataclass
class SavedRun:
    """results: None where the run did not finish. targets: by model, with the saved results."""

    folder: Path
    results: Results | None
    targets: dict[str, Target]


def read(folder: Path) -> SavedRun:
    """Every model of which a `bundle` stage was saved.

    Raises:
        QualificationError: this is no run's folder, or one of an earlier version.
    """
    if not folder.is_dir():
        raise QualificationError(f"{folder} is not there")
    finished = folder / FINISHED
    try:
        results = Results.model_validate_json(finished.read_bytes()) if finished.is_file() else None
        targets = {
            path.parent.name: _target(folder, path.parent)
            for path in sorted(folder.glob("*/bundle.json"))
        }
    except (ValidationError, KeyError, orjson.JSONDecodeError) as error:
        raise QualificationError(
            f"{folder} holds what this version did not write ({type(error).__name__})"
        ) from error
    if results is None and not targets:
        raise QualificationError(f"{folder} holds no run of scripts/qualify.py")
    return SavedRun(folder, results, targets)


def _target(folder: Path, model: Path) -> Target:
    saved = {path.stem: stages.saved(path) for path in model.glob("*.json")}
    results = {name: found for name, found in saved.items() if found is not None}
    bundle = results["bundle"].data
    checkpoint = Checkpoint.model_validate(bundle["checkpoint"])
    return Target(
        model.name,
        bundle["described"],
        checkpoint,
        family(checkpoint.family),
        read_dataset(folder, bundle["dataset"]),
        in_order(results),
    )


def in_order(results: dict[str, StageResult]) -> dict[str, StageResult]:
    """As they ran; a sweep's points, which are no stages of their own, after AIPerf's."""

    def place(name: str) -> tuple[float, str]:
        return (STAGES.index(name) if name in STAGES else STAGES.index("aiperf") + 0.5), name

    return {name: results[name] for name in sorted(results, key=place)}


def write_dataset(folder: Path, dataset: Dataset) -> None:
    """The ground truth, once for all models that share it."""
    path = _dataset_path(folder, dataset.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "name": dataset.name,
        "digest": dataset.digest,
        "images": [{"id": image.id, "name": image.name} for image in dataset.images],
        "ground_truth": dataset.ground_truth,
    }
    path.write_bytes(orjson.dumps(document))


def read_dataset(folder: Path, digest: str) -> Dataset:
    """Its images are names alone.

    Raises:
        QualificationError: it is not there.
    """
    path = _dataset_path(folder, digest)
    if not path.is_file():
        raise QualificationError(f"{folder} has no {DATASETS}/{path.name}")
    document = orjson.loads(path.read_bytes())
    images = [
        DatasetImage(each["id"], each["name"], Path(each["name"])) for each in document["images"]
    ]
    return Dataset(document["name"], digest, images, document["ground_truth"])


def without_paths(checkpoint: Checkpoint) -> dict[str, Any]:
    """The checkpoint's document without the folder of this machine it is read from."""
    document: dict[str, Any] = checkpoint.model_dump(mode="json")
    if "folder" in document["source"]:
        document["source"]["folder"] = "."
    return document


def _dataset_path(folder: Path, digest: str) -> Path:
    return folder / DATASETS / f"{digest[:16]}.json"
