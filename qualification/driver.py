"""`Driver`: the actor that runs a campaign's stages against the live application.

It lives in the application's own Ray cluster, so that native results come through the very
handles that serve HTTP. Each stage's result is an object in Ray's store, put there and kept by
the actor, and a file in the run's folder as soon as it exists, so that a run can be resumed, by
another driver too.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.exceptions import RayServeException

from deployments.config import IngressArgs
from deployments.detector import TaskResult
from models import catalogue
from models.errors import QualificationError
from models.family import family
from qualification import judging, probes, saved_run, stages, work
from qualification.aiperf import Point
from qualification.client import Client
from qualification.datasets import coco
from qualification.evidence import Seen
from qualification.judging import Data
from qualification.stages import StageResult
from qualification.target import Target

CALL_S = 120  # that a replica may take to answer; a handle to nothing waits for ever
FORGOTTEN_S = 120  # without a question after which the campaign is gone, and so is the driver


class Driver:
    """Runs one stage at a time; `progress` may be asked meanwhile (an asyncio actor).

    url: the application over HTTP. folder: the run's folder. points: AIPerf's runs, each a stage
    of its name.
    """

    def __init__(self, url: str, folder: str, points: Sequence[Point]) -> None:
        self._url = url
        self._folder = Path(folder)
        self._points = {point.name: point for point in points}
        self._targets: dict[str, Target] = {}
        self._objects: dict[tuple[str, str], ray.ObjectRef[StageResult]] = {}
        self._progress = (0, 0)
        self._moved = self._asked = time.monotonic()
        self._watch: asyncio.Task[None] | None = None

    async def progress(self) -> tuple[int, int, float]:
        """(done, total) of the stage that is running, and the seconds since that last moved."""
        self._asked = time.monotonic()
        return *self._progress, self._asked - self._moved

    async def report(self, done: int, total: int) -> None:
        """For the tasks of work.py."""
        self._report(done, total)

    async def stage(self, model: str, stage: str) -> "list[ray.ObjectRef[StageResult]]":
        """Run (or take up again) a stage: a list of one reference, so that Ray hands over the
        object the actor keeps rather than a copy.

        Raises:
            DetserveError: the stage could not run; a gate that fails is a result.
        """
        self._asked = time.monotonic()
        self._watch = self._watch or asyncio.create_task(self._leave_when_forgotten())
        self._report(0, 0)
        if model not in self._targets:
            self._targets[model] = await self._target(model)
        target = self._targets[model]
        result = None if stage in stages.ALWAYS else await self._saved(target, stage)
        if result is None:
            await self._take_up(target, stage)
            result = await self._run(target, stage)
            await asyncio.to_thread(stages.save, self._path(target, stage), result)
        target.results[stage] = result
        reference = ray.put(result)
        self._objects[model, stage] = reference
        return [reference]

    async def describe(self, model: str) -> tuple[dict[str, Any], str, str, list[Path]]:
        """What is served, the dataset's name and digest, and its image files."""
        if model not in self._targets:
            self._targets[model] = await self._target(model)
        target = self._targets[model]
        paths = [image.path for image in target.dataset.images]
        return target.described, target.dataset.name, target.dataset.digest, paths

    async def _target(self, model: str) -> Target:
        described = await self._call(model, "describe")
        checkpoint = catalogue.load(described["checkpoint"])
        dataset = await asyncio.to_thread(coco.load, checkpoint.dataset, self._report)
        criteria = family(checkpoint.family).criteria
        return Target(model, described, checkpoint, criteria, dataset)

    async def _saved(self, target: Target, stage: str) -> StageResult | None:
        """The saved result, if it is of what is served and asked for now."""
        found = await asyncio.to_thread(stages.saved, self._path(target, stage))
        if found is None or found.key != self._key(target, stage):
            return None
        return found.model_copy(update={"kept": True})

    async def _take_up(self, target: Target, stage: str) -> None:
        """Have the results that `stage` needs; another driver may have made them.

        Raises:
            QualificationError: there are none of what is served now.
        """
        for name in set(stages.needs(stage)) - target.results.keys():
            found = await self._saved(target, name)
            if found is None:
                raise QualificationError(
                    f"there is no result of the stage {name} on what is served now: it changed "
                    f"during the campaign"
                )
            target.results[name] = found

    async def _run(self, target: Target, stage: str) -> StageResult:
        start = time.perf_counter()
        if stage == "bundle":
            data = await self._bundle(target)
        elif stage == "bundle-after":
            data = await self._bundle_after(target)
        elif stage == "native":
            data = await self._native(target)
        elif stage == "reference":
            data = await self._reference(target)
        elif stage in self._points:
            data = await self._aiperf(target, self._points[stage])
        elif stage in judging.COMPUTED:
            data = await asyncio.to_thread(judging.compute, target, stage)
        else:
            run = {"identity": self._identity, "probes": self._probes}[stage]
            data = await asyncio.to_thread(run, target)
        return StageResult(
            stage=stage,
            key=self._key(target, stage),
            gates=await asyncio.to_thread(judging.judge, target, stage, data),
            data=data,
            seconds=time.perf_counter() - start,
        )

    async def _bundle(self, target: Target) -> Data:
        listed, limits = await asyncio.to_thread(self._listed, target.name)
        await asyncio.to_thread(saved_run.write_dataset, self._folder, target.dataset)
        return {
            "on_disk": await self._on_disk(target),
            "described": target.described,
            "listed": listed,
            "limits": limits,
            "checkpoint": saved_run.without_paths(target.checkpoint),
            "criteria": target.criteria.bounds(),
            "dataset": target.dataset.digest,
        }

    async def _bundle_after(self, target: Target) -> Data:
        found = await self._on_disk(target)
        return {"on_disk": found, "described": await self._call(target.name, "describe")}

    async def _on_disk(self, target: Target) -> Data:
        return judging.on_disk(await self._call(target.name, "verify_bundle"))

    def _listed(self, model: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """The model in `/v1/models`, and the limits of the ingress."""
        client = Client(self._url)
        (listed, models), (told, about) = map(client.get, ("/v1/models", "/v1/metadata"))
        client.close()
        if (listed, told) != (200, 200):
            raise QualificationError(
                f"/v1/models answers with status {listed}, /v1/metadata with {told}"
            )
        entries: Any = models["data"]
        limits: Any = about["limits"]
        return next((entry for entry in entries if entry["id"] == model), None), limits

    async def _native(self, target: Target) -> Data:
        max_pixels: int = IngressArgs.model_fields["max_pixels"].default
        seen: dict[str, list[Any]] = {key: [] for key in target.thresholds}
        for done, image in enumerate(target.dataset.images):
            self._report(done, len(target.dataset.images))
            encoded = await asyncio.to_thread(image.path.read_bytes)
            for key, threshold in target.thresholds.items():
                result = await self._call(target.name, "detect", encoded, max_pixels, threshold)
                if not isinstance(result, TaskResult):
                    raise QualificationError(f"{image.name}: {result}")
                if result.bundle_digest != target.digest:
                    raise QualificationError("the served bundle changed during the campaign")
                seen[key].append(Seen(image.name, result.detections, result.labels).to_json())
        return seen

    async def _reference(self, target: Target) -> Data:
        images, this = target.dataset.images, _this()
        found = work.reference.remote(target.checkpoint, images, target.thresholds, this)
        return await work.done("the process of the reference", found)

    def _identity(self, target: Target) -> Data:
        client = Client(self._url)
        responses, latencies = [], []
        for done, image in enumerate(target.dataset.images):
            self._report(done, len(target.dataset.images))
            encoded = image.path.read_bytes()
            start = time.perf_counter()
            status, body = client.infer(target.name, [encoded])
            latencies.append((time.perf_counter() - start) * 1e3)
            responses.append([status, body.decode(errors="replace")])
        client.close()
        return {"responses": responses, "latency_ms": latencies}

    def _probes(self, target: Target) -> Data:
        evidence = probes.run(
            url=self._url,
            model=target.name,
            images=target.dataset.images,
            max_images=target.results["bundle"].data["limits"]["max_images"],
            progress=self._report,
        )
        return evidence.model_dump()

    async def _aiperf(self, target: Target, point: Point) -> Data:
        folder = self._folder / target.name / f"{point.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        run = work.load_test.remote(
            self._url, target.name, target.dataset.images, folder, point, _this()
        )
        evidence = await work.done("the process that ran AIPerf", run)
        return evidence.model_dump()

    async def _call(self, model: str, method: str, *arguments: Any) -> Any:
        """What a replica answers.

        Raises:
            QualificationError: it was lost or does not answer.
        """
        try:
            answer = getattr(self._handle(model), method).remote(*arguments)
            return await asyncio.wait_for(work.done(f"a replica of {model}", answer), CALL_S)
        except TimeoutError as error:
            raise QualificationError(f"no replica of {model} answered in {CALL_S} s") from error
        except RayServeException as error:
            raise QualificationError(f"{model} does not answer ({error})") from error

    def _handle(self, model: str) -> Any:
        try:
            return serve.get_deployment_handle("Detector", model)
        except KeyError as error:
            raise QualificationError(
                f"no model {model} in this Ray cluster: {self._url} is another one's application"
            ) from error

    def _key(self, target: Target, stage: str) -> str:
        point = self._points.get(stage)
        return target.key if point is None else stages.digest(target.key, point)

    def _path(self, target: Target, stage: str) -> Path:
        return stages.path(self._folder, target.name, stage)

    def _report(self, done: int, total: int) -> None:
        self._progress = (done, total)
        self._moved = time.monotonic()

    async def _leave_when_forgotten(self) -> None:
        """A script that was killed cannot end this actor."""
        while time.monotonic() - self._asked < FORGOTTEN_S:
            await asyncio.sleep(FORGOTTEN_S / 10)
        ray.kill(_this())


def _this() -> Any:
    return ray.get_runtime_context().current_actor
