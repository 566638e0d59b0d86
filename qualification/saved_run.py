"""A run's folder read again: what judging needs, without the models, their images or a server.

Whoever receives a run can apply its gates on another machine, so the ground truth and what the
checkpoint's file said lie in the folder beside the evidence.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from models.catalogue import Checkpoint
from models.errors import QualificationError
from models.family import family
from qualification import stages
from qualification.aiperf import QUALIFYING, WARM_UP, AIPerfEvidence, Point
from qualification.datasets.coco import Dataset, DatasetImage
from qualification.results import Results
from qualification.run_folder import FINISHED
from qualification.stages import STAGES, StageResult
from qualification.target import Target

DATASETS = "datasets"


@dataclass
class SavedRun:
    """results: None where the run did not finish. targets: by model, with the saved results.
    stale: by model, results of another bundle, dataset, threshold or config than `bundle.json`'s.
    """

    folder: Path
    results: Results | None
    targets: dict[str, Target]
    stale: dict[str, dict[str, StageResult]]


@contextmanager
def reading(what: object) -> Iterator[None]:
    """Around whatever takes saved evidence apart: nothing in it is sure to be there.

    Raises:
        QualificationError: something was not, or not as it should be.
    """
    try:
        yield
    except (AssertionError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise QualificationError(
            f"{what} is damaged or of another version ({type(error).__name__}: {first})"
        ) from error


def read(folder: Path) -> SavedRun:
    """Every model of which a `bundle` stage was saved.

    Raises:
        QualificationError: this is no run's folder, a damaged one, or one of an earlier version.
    """
    if not folder.is_dir():
        raise QualificationError(f"{folder} is not there")
    finished = folder / FINISHED
    with reading(finished):
        results = Results.model_validate_json(finished.read_bytes()) if finished.is_file() else None
    run = SavedRun(folder, results, {}, {})
    for path in sorted(folder.glob("*/bundle.json")):
        model = path.parent.name
        run.targets[model], run.stale[model] = _target(folder, path.parent)
    if results is None and not run.targets:
        raise QualificationError(f"{folder} holds no run of scripts/qualify.py")
    return run


def _target(folder: Path, model: Path) -> tuple[Target, dict[str, StageResult]]:
    results = {}
    for path in sorted(model.glob("*.json")):
        with reading(path):
            results[path.stem] = StageResult.model_validate_json(path.read_bytes())
    with reading(model / "bundle.json"):
        bundle = results["bundle"].data
        checkpoint = Checkpoint.model_validate(bundle["checkpoint"])
        criteria = family(checkpoint.family).criteria.bounded(bundle["criteria"])
        dataset = read_dataset(folder, bundle["dataset"])
        target = Target(model.name, bundle["described"], checkpoint, criteria, dataset)
        key = target.key
    stale: dict[str, StageResult] = {}
    for name, result in in_order(results).items():
        with reading(model / f"{name}.json"):
            of_this = result.key == _key(key, result)
        (target.results if of_this else stale)[name] = result
    return target, stale


def _key(key: str, result: StageResult) -> str:
    """What the key of such a stage is, for the target of this key."""
    if result.stage in STAGES and result.stage != QUALIFYING.name:
        return key
    evidence = AIPerfEvidence.model_validate(result.data)
    point = Point(result.stage, evidence.expected - WARM_UP, evidence.concurrency, evidence.rate)
    return stages.digest(key, point)


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
