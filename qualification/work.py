"""The long work of a campaign as Ray tasks: the reference, and AIPerf.

Each runs in a process of its own that ends with it, so that one that dies or is killed costs its
stage and not the driver actor. `tell` is the driver, which is told of progress.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from models.catalogue import Checkpoint
from models.errors import QualificationError
from models.family import family
from models.fetch import fetch
from qualification import aiperf
from qualification.aiperf import AIPerfEvidence, Point
from qualification.datasets.coco import DatasetImage
from qualification.evidence import Seen

Answer = TypeVar("Answer")

# No CPU is asked for: the models hold them, and a task that waits for one would wait for ever.
# Nothing is tried twice: a campaign states what died. One call a process gives memory back.
task = ray.remote(num_cpus=0, max_retries=0, max_calls=1)


@task
def reference(
    checkpoint: Checkpoint,
    images: list[DatasetImage],
    thresholds: dict[str, float],
    tell: Any,
) -> dict[str, Any]:
    """The family's reference on each image, down to each threshold: JSON of `Seen` by the
    threshold's key, and the reference's own `labels`."""
    files = fetch(checkpoint.source, checkpoint.id, checkpoint.licence, log=_ignore)
    run = family(checkpoint.family).reference(files, checkpoint.canvas, checkpoint.labels)
    seen: dict[str, list[Any]] = {key: [] for key in thresholds}
    report = reporter(tell)
    for done, image in enumerate(images):
        report(done, len(images))
        encoded = image.path.read_bytes()
        for key, threshold in thresholds.items():
            found = run(encoded, threshold)
            seen[key].append(Seen.of(image.name, found, run.labels).to_json())
    return {**seen, "labels": list(run.labels)}


@task
def load_test(
    url: str, model: str, images: list[DatasetImage], folder: Path, point: Point, tell: Any
) -> AIPerfEvidence:
    """One AIPerf process at one point, into a fresh folder."""
    return aiperf.run(
        url=url, model=model, images=images, folder=folder, point=point, progress=reporter(tell)
    )


async def done(what: str, answer: Awaitable[Answer]) -> Answer:
    """A task's or a replica's answer.

    Raises:
        QualificationError: `what` died, or could not answer.
        Exception: what it raised itself.
    """
    try:
        return await answer
    except RayTaskError as error:  # first: it is also an instance of its cause's class
        raise error.cause from error
    except RayError as error:
        raise QualificationError(f"{what} was lost ({type(error).__name__})") from error


def reporter(tell: Any) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        tell.report.remote(done, total)

    return report


def _ignore(message: str) -> None:
    """The files are already in the cache: the bundle was built from them."""
