"""The annotated pictures of a model: chosen and drawn once, kept in the run folder as JPEGs.

Kept, so that the page can be made again where the dataset is not; they are drawn anew when the
detections in the run folder are no longer those they show.
"""

import base64
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from pydantic import BaseModel

from models.criteria import Criteria
from models.errors import DetserveError
from models.family import family
from qualification.html.choice import MATCH_IOU, Chosen, choose
from qualification.html.drawing import draw
from qualification.html.saved import Saved
from qualification.html.truth import Truth, images
from qualification.report import short
from qualification.results import ModelRow

A_MODEL = 6  # pictures, at most
LONGEST_SIDE = 900  # pixels
LARGEST = 110_000  # bytes of one picture
ALL_MODELS = 3_000_000  # bytes of a page's pictures; as text in the page they are a third more
SMALLEST = 45_000  # bytes below which fewer pictures are better than worse ones
# longest side and JPEG quality, tried until a picture is small enough
ENCODINGS = ((LONGEST_SIDE, 82), (LONGEST_SIDE, 70), (LONGEST_SIDE, 55), (720, 55), (560, 45))


class Picture(BaseModel):
    """file: name in the model's `report` folder. facts: sentences for the caption."""

    file: str
    image: str
    kind: str
    width: int
    height: int
    facts: list[str]


class Pictures(BaseModel):
    """The pictures of one model. of: digest of the detections that they show."""

    of: str
    pictures: list[Picture]


@dataclass(frozen=True)
class Room:
    """What one model may use of the page: pictures, and bytes of each."""

    count: int
    bytes: int


def room(models: int) -> Room:
    """An equal share for each of the page's models; fewer pictures before bad ones."""
    count = max(1, min(A_MODEL, ALL_MODELS // (models * SMALLEST)))
    return Room(count, min(LARGEST, ALL_MODELS // (models * count)))


def kept_or_drawn(
    folder: Path, row: ModelRow, saved: Saved, truth: Truth | None, models: int
) -> list[Picture] | None:
    """The pictures of a model whose run folder is `folder`; None where there are none and the
    dataset to draw them from is not here. models: how many share the page."""
    index = folder / "report" / "pictures.json"
    digest = _digest(folder)
    if index.is_file():
        kept = Pictures.model_validate_json(index.read_bytes())
        if kept.of == digest:
            return kept.pictures
    paths = images(row)
    if saved.native is None or paths is None:
        return None
    allowed = room(models)
    criteria = _criteria(row)
    index.parent.mkdir(exist_ok=True)
    drawn: list[Picture] = []
    for chosen in choose(saved.native, saved.reference, truth, criteria, allowed.count):
        encoded, size = _encoded(paths[chosen.native.image], chosen, allowed.bytes)
        file = f"{len(drawn) + 1}.jpg"
        (index.parent / file).write_bytes(encoded)
        drawn.append(
            Picture(
                file=file,
                image=chosen.native.image,
                kind=chosen.kind,
                width=size[0],
                height=size[1],
                facts=_facts(chosen),
            )
        )
    index.write_text(Pictures(of=digest, pictures=drawn).model_dump_json(indent=1))
    return drawn


def data_url(folder: Path, picture: Picture) -> str:
    encoded = (folder / "report" / Path(picture.file).name).read_bytes()
    return f"data:image/jpeg;base64,{base64.b64encode(encoded).decode()}"


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for stage in ("native", "reference"):
        path = folder / f"{stage}.json"
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def _criteria(row: ModelRow) -> Criteria | None:
    try:
        return family(row.family).criteria if row.family else None
    except DetserveError:  # of a later version, or another installation's own
        return None


def _encoded(image: Path, chosen: Chosen, limit: int) -> tuple[bytes, tuple[int, int]]:
    """The picture as JPEG in at most `limit` bytes (or as small as it gets), and its size."""
    encoded, size = b"", (0, 0)
    for side, quality in ENCODINGS:
        picture: Image.Image = draw(image, chosen, side)
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality, optimize=True, progressive=True)
        encoded, size = file.getvalue(), picture.size
        if len(encoded) <= limit:
            break
    return encoded, size


def _facts(chosen: Chosen) -> list[str]:
    counts = [f"{len(chosen.native.labels)} native"]
    if chosen.reference is not None:
        counts.append(f"{len(chosen.reference.labels)} reference")
    if chosen.objects is not None:
        counts.append(f"{len(chosen.objects[1])} in the ground truth")
    facts = [f"Boxes: {', '.join(counts)}."]
    if chosen.against is not None:
        extra, missed = int(chosen.against.extra.sum()), int(chosen.against.missed.sum())
        facts.append(
            f"Of the ground truth {chosen.against.found} found and {missed} missed by native, "
            f"{extra} extra (same class, IoU at least {MATCH_IOU:g})."
        )
    facts += _agreement(chosen)
    return facts


def _agreement(chosen: Chosen) -> Sequence[str]:
    if chosen.problem is not None:
        return [f"Native against reference: {chosen.problem}."]
    if chosen.differences:
        worst = ", ".join(f"{name} {short(value)}" for name, value in chosen.differences.items())
        return [f"Native against reference, at worst: {worst}."]
    return []
