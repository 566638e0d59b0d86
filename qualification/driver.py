"""`Driver`: the actor that runs a campaign's stages against the live application.

It lives in the application's own Ray cluster, so that native results come through the very
handles that serve HTTP. Each stage's result is an object in Ray's store, put there and kept by
the actor, and a file in the run's folder as soon as it exists, so that a run can be resumed.
"""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import ray
from pydantic import BaseModel
from ray import serve

from deployments.config import IngressArgs
from deployments.detector import TaskResult
from models import catalogue
from models.catalogue import Checkpoint
from models.errors import DetserveError, QualificationError
from models.family import Family, family
from models.fetch import fetch
from qualification import aiperf, gates
from qualification.client import Client
from qualification.datasets import coco
from qualification.datasets.coco import Dataset
from qualification.evidence import Seen
from qualification.gates import Gate, HalfCase
from qualification.mean_ap import mean_ap

# What a stage saw, as JSON, and its verdicts.
Outcome = tuple[dict[str, Any], list[Gate]]

BELOW = "below"  # the key of detections down to below the served threshold

STAGES = (
    "bundle",
    "native",
    "reference",
    "owning-case",
    "dataset",
    "identity",
    "aiperf",
    "bundle-after",
)


class StageResult(BaseModel):
    """What a stage saw and how its gates judged it.

    key: digest of what the stage depends on; a saved result is taken up again only under the
    same key.
    """

    stage: str
    key: str
    gates: list[Gate]
    data: dict[str, Any]
    seconds: float
    kept: bool = False  # taken up from an interrupted run


@dataclass
class Target:
    """One served model under qualification."""

    name: str
    described: dict[str, Any]
    checkpoint: Checkpoint
    family: Family
    dataset: Dataset
    results: dict[str, StageResult] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        digest: str = self.described["bundle_digest"]
        return digest

    @property
    def key(self) -> str:
        parts = (self.digest, self.dataset.digest, self.described["threshold"])
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    @property
    def thresholds(self) -> dict[str, float]:
        """What to detect down to, by the key under which it is kept: the served threshold and, in
        FP16, as far below it as two scores of one object may be apart."""
        served: float = self.described["threshold"]
        if self.described["precision"] != "fp16":
            return {"seen": served}
        return {"seen": served, BELOW: max(0.0, served - self.family.criteria.score)}

    def seen(self, stage: str, key: str = "seen") -> list[Seen]:
        return [Seen.from_json(value) for value in self.results[stage].data[key]]


class Driver:
    """Runs one stage at a time; `progress` may be asked meanwhile (an asyncio actor).

    url: the application over HTTP. folder: the run's folder.
    """

    def __init__(self, url: str, folder: str) -> None:
        self._url = url
        self._folder = Path(folder)
        self._targets: dict[str, Target] = {}
        self._objects: dict[tuple[str, str], ray.ObjectRef[StageResult]] = {}
        self._progress = (0, 0)

    async def progress(self) -> tuple[int, int]:
        """(done, total) of the stage that is running."""
        return self._progress

    async def stage(self, model: str, stage: str) -> "list[ray.ObjectRef[StageResult]]":
        """Run (or take up again) a stage: a list of one reference, so that Ray hands over the
        object the actor keeps rather than a copy.

        Raises:
            DetserveError: the stage could not run; a gate that fails is a result.
        """
        self._progress = (0, 0)
        if model not in self._targets:
            self._targets[model] = await self._target(model)
        target = self._targets[model]
        path = self._folder / model / f"{stage}.json"
        saved = await asyncio.to_thread(_saved, path)
        if saved is not None and saved.key == target.key and not _checks_disk(stage):
            result = saved.model_copy(update={"kept": True})
        else:
            result = await self._run(target, stage)
            await asyncio.to_thread(_save, path, result)
        target.results[stage] = result
        reference = ray.put(result)
        self._objects[model, stage] = reference
        return [reference]

    async def describe(self, model: str) -> tuple[dict[str, Any], str, str, list[Path]]:
        """What is served, the dataset's name and digest, and its image files."""
        target = self._targets[model]
        paths = [image.path for image in target.dataset.images]
        return target.described, target.dataset.name, target.dataset.digest, paths

    async def _target(self, model: str) -> Target:
        described = await self._handle(model).describe.remote()
        checkpoint = catalogue.load(described["checkpoint"])
        dataset = await asyncio.to_thread(coco.load, checkpoint.dataset, self._report)
        return Target(model, described, checkpoint, family(checkpoint.family), dataset)

    async def _run(self, target: Target, stage: str) -> StageResult:
        start = time.perf_counter()
        if stage in ("bundle", "bundle-after"):
            data, judged = await self._bundle(target, stage)
        elif stage == "native":
            data, judged = await self._native(target)
        else:
            run: Callable[[Target], Outcome] = {
                "reference": self._reference,
                "owning-case": self._owning_case,
                "dataset": self._dataset,
                "identity": self._identity,
                "aiperf": self._aiperf,
            }[stage]
            data, judged = await asyncio.to_thread(run, target)
        return StageResult(
            stage=stage,
            key=target.key,
            gates=judged,
            data=data,
            seconds=time.perf_counter() - start,
        )

    async def _bundle(self, target: Target, stage: str) -> Outcome:
        found = await self._handle(target.name).verify_bundle.remote()
        if isinstance(found, DetserveError):
            gate = gates.bundle(stage, target.digest, None, str(found))
        else:
            gate = gates.bundle(stage, target.digest, found, None)
        return {"described": target.described}, [gate]

    async def _native(self, target: Target) -> Outcome:
        handle = self._handle(target.name)
        max_pixels: int = IngressArgs.model_fields["max_pixels"].default
        seen: dict[str, list[Any]] = {key: [] for key in target.thresholds}
        for done, image in enumerate(target.dataset.images):
            self._report(done, len(target.dataset.images))
            encoded = await asyncio.to_thread(image.path.read_bytes)
            for key, threshold in target.thresholds.items():
                result = await handle.detect.remote(encoded, max_pixels, threshold)
                if not isinstance(result, TaskResult):
                    raise QualificationError(f"{image.name}: {result}")
                if result.bundle_digest != target.digest:
                    raise QualificationError("the served bundle changed during the campaign")
                seen[key].append(Seen(image.name, result.detections, result.labels).to_json())
        return seen, []

    def _reference(self, target: Target) -> Outcome:
        checkpoint = target.checkpoint
        files = fetch(checkpoint.source, checkpoint.id, checkpoint.licence, log=_ignore)
        reference = target.family.reference(files, checkpoint.canvas, checkpoint.labels)
        seen: dict[str, list[Any]] = {key: [] for key in target.thresholds}
        for done, image in enumerate(target.dataset.images):
            self._report(done, len(target.dataset.images))
            encoded = image.path.read_bytes()
            for key, threshold in target.thresholds.items():
                found = reference(encoded, threshold)
                seen[key].append(Seen.of(image.name, found, reference.labels).to_json())
        return {**seen, "labels": list(reference.labels)}, []

    def _owning_case(self, target: Target) -> Outcome:
        half = None
        if BELOW in target.thresholds:
            native, reference = (target.seen(stage, BELOW) for stage in ("native", "reference"))
            half = HalfCase(native, reference, target.described["threshold"])
        gate = gates.owning_case(
            target.family.criteria,
            target.seen("native"),
            target.described["labels"],
            target.seen("reference"),
            target.results["reference"].data["labels"],
            half,
        )
        return {}, [gate]

    def _dataset(self, target: Target) -> Outcome:
        labels = getattr(target.checkpoint.dataset, "labels", None)
        native, reference = (
            mean_ap(target.dataset, target.seen(stage), labels) for stage in ("native", "reference")
        )
        judged = gates.dataset(native, reference, target.checkpoint.gates)
        return {"native": native.model_dump(), "reference": reference.model_dump()}, judged

    def _identity(self, target: Target) -> Outcome:
        client = Client(self._url)
        responses = []
        for done, image in enumerate(target.dataset.images):
            self._report(done, len(target.dataset.images))
            responses.append(client.infer(target.name, [image.path.read_bytes()]))
        client.close()
        data = {
            "responses": [[status, body.decode(errors="replace")] for status, body in responses]
        }
        return data, [gates.identity(target.seen("native"), responses)]

    def _aiperf(self, target: Target) -> Outcome:
        folder = self._folder / target.name / f"aiperf-{time.strftime('%Y%m%d-%H%M%S')}"
        evidence = aiperf.run(
            url=self._url,
            model=target.name,
            images=target.dataset.images,
            folder=folder,
            progress=self._report,
        )
        judged = gates.aiperf(target.seen("native"), evidence, target.digest)
        return evidence.model_dump(), judged

    def _handle(self, model: str) -> Any:
        return serve.get_deployment_handle("Detector", model)

    def _report(self, done: int, total: int) -> None:
        self._progress = (done, total)


def start(url: str, folder: Path, name: str) -> Any:
    """A detached, named driver actor in the connected Ray cluster.

    Detached, because an ordinary actor and its objects die with the script that made it.
    """
    options: dict[str, Any] = {"num_cpus": 0, "name": name, "lifetime": "detached"}
    return ray.remote(Driver).options(**options).remote(url, str(folder))


def _checks_disk(stage: str) -> bool:
    """Stages that look at files which may have changed since; never taken from a saved result."""
    return stage in ("bundle", "bundle-after")


def _save(path: Path, result: StageResult) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    scratch.write_bytes(orjson.dumps(result.model_dump(mode="json")))
    os.replace(scratch, path)


def _saved(path: Path) -> StageResult | None:
    if not path.is_file():
        return None
    return StageResult.model_validate(json.loads(path.read_bytes()))


def _ignore(message: str) -> None:
    """The files are already in the cache: the bundle was built from them."""
