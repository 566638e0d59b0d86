"""`Detector`: the replica that holds one engine; the same class for every family.

Its Task call is `detect(encoded image) -> Detections`: decode, preprocess, engine, postprocess.
Nothing of it runs on the replica's event loop: decoding runs in worker threads, the engine in those
of an `EngineQueue`.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from ray import serve

from deployments import fit
from deployments.bundles import open_or_build
from deployments.config import ModelArgs
from deployments.console import say
from deployments.engine_queue import EngineQueue
from models import images, status
from models.bundle import TRIAL_SIZE, Bundle, Manifest
from models.detections import Detections
from models.errors import BundleUnqualified, DetserveError, ImageError
from models.placement import Placement

# Threads that decode and letterbox while the engine works on another image.
DECODERS = 2


@dataclass
class Task:
    """Wall times of one Task call in milliseconds, `task_call_wall_ms` and its stages.

    batch: canvases in the engine's call, whose time is that of all of them.
    """

    task_call_wall_ms: float = 0.0
    stages_ms: dict[str, float] = field(default_factory=dict)
    batch: int = 1


@dataclass(frozen=True)
class TaskResult:
    """One image's detections with the names of their classes, and who made them."""

    detections: Detections
    labels: list[str]
    bundle_digest: str
    replica: str
    task: Task


class Detector:
    """Opens (or first builds) its bundle and answers Task calls.

    Raises:
        CatalogueError, SourceError, BundleError: the bundle cannot be built, or is not what it was
            built as.
        ConfigError: it takes more of the GPU than the model is given.
        BundleUnqualified: it has not been proved as far as `require` asks.
            The replica then does not start, and Serve reports the sentence.
    """

    def __init__(self, args: ModelArgs) -> None:
        cv2.setNumThreads(1)  # the threads below are the parallelism
        self._bundle, self._engine_reason = open_or_build(args, say)
        manifest = self._bundle.manifest
        check_status(manifest, args.require)
        fit.check(manifest, args.resources.gpus)
        self._config = configuration(args)
        self._threshold = manifest.threshold if args.threshold is None else args.threshold
        engine = self._bundle.engine(
            threads=max(1, int(args.resources.cpus)), max_batch=args.max_batch
        )
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")
        grey = np.full((*(manifest.canvas or TRIAL_SIZE), 3), 114, np.uint8)
        self._engine: EngineQueue[Detections] = EngineQueue(engine, self._bundle.place(grey)[1])
        self._replica = serve.get_replica_context().replica_id.unique_id

    def __del__(self) -> None:
        """Called by Serve when the replica stops, and by Python when nothing refers to it."""
        if (engine := self.__dict__.pop("_engine", None)) is not None:
            engine.close()

    async def detect(
        self, image: bytes, max_pixels: int, threshold: float | None = None
    ) -> TaskResult | ImageError:
        """Detections on one encoded image, down to `threshold` or the model's own.

        A refused image is returned, not raised: it is the caller's mistake, and Serve logs what a
        replica raises with a traceback.
        """
        loop = asyncio.get_running_loop()
        task = Task()
        try:
            start, placed, canvas = await loop.run_in_executor(
                self._decoders, self._prepare, image, max_pixels, task
            )
        except ImageError as error:
            return error
        limit = self._threshold if threshold is None else threshold
        # cancelled with this call where the engine has not begun: Serve cancels one whose client
        # has left or whose deadline is over
        done = await asyncio.wrap_future(
            self._engine.submit(canvas, partial(self._decode, placed=placed, threshold=limit))
        )
        task.stages_ms |= {"engine": done.engine_ms, "postprocess": done.finish_ms}
        task.batch = done.batch
        task.task_call_wall_ms = (done.ended - start) * 1e3
        detections = done.made
        manifest = self._bundle.manifest
        labels = [manifest.labels[index] for index in detections.class_ids]
        return TaskResult(detections, labels, manifest.digest, self._replica, task)

    async def describe(self) -> dict[str, Any]:
        """What is served, for /v1/models and the qualification report."""
        manifest = self._bundle.manifest
        record = await asyncio.to_thread(status.read, manifest.digest)
        promoted = await asyncio.to_thread(status.promotion, manifest.digest)
        return {
            **manifest.model_dump(mode="json", exclude={"files", "digest", "schema_version"}),
            "bundle_digest": manifest.digest,
            "engine_reason": self._engine_reason,
            "threshold": self._threshold,
            "config": self._config,
            "promoted": promoted and promoted.model_dump(mode="json"),
            "qualification": {"status": status.Status.IMPLEMENTED}
            if record is None
            else record.model_dump(mode="json"),
        }

    async def verify_bundle(self) -> str | DetserveError:
        """Read the bundle's files again: the digest, or the error that names what was changed.

        Also an error when the folder now holds another bundle than the one in memory.
        """
        try:
            found = await asyncio.to_thread(Bundle.open, self._bundle.folder)
        except DetserveError as error:
            return error
        return found.manifest.digest

    def _prepare(
        self, image: bytes, max_pixels: int, task: Task
    ) -> tuple[float, Placement, np.ndarray]:
        start = time.perf_counter()
        pixels = images.decode(image, max_pixels)
        decoded = time.perf_counter()
        placed, canvas = self._bundle.place(pixels)
        task.stages_ms["decode"] = (decoded - start) * 1e3
        task.stages_ms["preprocess"] = (time.perf_counter() - decoded) * 1e3
        return start, placed, canvas

    def _decode(
        self, outputs: dict[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        return self._bundle.decode(outputs, placed, threshold)


def configuration(args: ModelArgs) -> dict[str, Any]:
    """`args` as /v1/models shows them: a path would say where this machine keeps its files."""
    return args.model_dump(mode="json") | {"bundle": args.bundle and Path(args.bundle).name}


def check_status(manifest: Manifest, required: status.Status | None) -> None:
    """`require` of a model.

    Raises:
        BundleUnqualified: the bundle has not been proved so far.
    """
    record = status.read(manifest.digest)
    reached = status.Status.IMPLEMENTED if record is None else record.status
    if required is not None and not reached.reaches(required):
        raise BundleUnqualified(
            f"bundle {manifest.digest[:12]} of {manifest.checkpoint} has the status {reached} and "
            f"`require` asks for {required}: qualify it where it is served without `require`"
        )
