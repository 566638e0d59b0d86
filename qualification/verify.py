"""`verify`: a built bundle against its published implementation, before anything is served.

The same criteria as a campaign's owning case, on the first few images of the checkpoint's dataset
and in this process, so that a build that went wrong is known at once. It gives no status: a
campaign on the live application does.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from models.bundle import Bundle
from models.cache import Log
from models.catalogue import Checkpoint
from models.family import family
from models.fetch import fetch
from models.images import decode
from qualification import gates
from qualification.datasets import coco
from qualification.datasets.coco import Dataset
from qualification.evidence import Seen

IMAGES = 8
MAX_PIXELS = 200_000_000


class Verified(BaseModel):
    """What judging found.

    worst: the largest differences, by the name of their bound. problem: why it is not right.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bundle_digest: str
    dataset_digest: str
    images: int
    boxes: int
    worst: dict[str, float]
    problem: str | None


def verify(checkpoint: Checkpoint, bundle: Bundle, *, log: Log) -> Verified:
    """Judge the bundle, or take up the judgement of the very same bundle and images.

    Raises:
        DetserveError: the dataset is not there, or the reference cannot run.
    """
    dataset = coco.load(checkpoint.dataset)
    kept = bundle.folder.with_suffix(".verified.json")
    found = _kept(kept)
    if found is None or found.dataset_digest != dataset.digest:
        found = _judge(checkpoint, bundle, dataset, log)
        kept.write_text(found.model_dump_json(indent=1))
    worst = ", ".join(f"{name} {value:.2g}" for name, value in found.worst.items())
    verdict = "right" if found.problem is None else "NOT right"
    log(f"{checkpoint.id}: {verdict} on {found.images} images, {found.boxes} boxes; worst {worst}")
    return found


def _judge(checkpoint: Checkpoint, bundle: Bundle, dataset: Dataset, log: Log) -> Verified:
    owner = family(checkpoint.family)
    log(f"{checkpoint.id}: judging the bundle against its published implementation")
    files = fetch(checkpoint.source, checkpoint.id, checkpoint.licence, log=log)
    reference = owner.reference(files, checkpoint.canvas, checkpoint.labels)
    engine = bundle.engine(threads=1)
    native, published = [], []
    for image in dataset.images[:IMAGES]:
        encoded = image.path.read_bytes()
        placed, canvas = bundle.place(decode(encoded, MAX_PIXELS))
        ours = bundle.decode(engine.infer(canvas), placed, checkpoint.threshold)
        theirs = reference(encoded, checkpoint.threshold)
        native.append(Seen.of(image.name, ours, checkpoint.labels))
        published.append(Seen.of(image.name, theirs, reference.labels))
    engine.close()
    gate = gates.owning_case(owner.criteria, native, checkpoint.labels, published, reference.labels)
    return Verified(
        bundle_digest=bundle.manifest.digest,
        dataset_digest=dataset.digest,
        images=len(native),
        boxes=sum(len(one.detections) for one in native),
        worst={name: float(gate.measured[name] or 0) for name in owner.criteria.bounds()},
        problem=None if gate.passed else gate.detail,
    )


def _kept(path: Path) -> Verified | None:
    try:
        return Verified.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
