"""The catalogue: one YAML file a checkpoint, validated here and nowhere else.

A file names published weights at a pinned revision, the family that runs them, and what counts as
right for them. Adding a checkpoint to a family is adding a file to this folder or, without a
checkout, to DETSERVE_HOME/catalogue. How far each is proved is stated there too, and
docs/checkpoints.md is made from all of it (models/catalogue/coverage.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from models.errors import CatalogueError
from models.family import family_names
from models.home import home
from models.labels import LABEL_SETS
from models.precision import Precision
from models.sources import Source
from models.status import Status

FOLDER = Path(__file__).parent


# What may be missing in the proof of a checkpoint: the name in its file, and what it means.
GAPS = {
    "weights": "Its published weights have never been fetched: the tests run random weights in the "
    "published format. Its published figures, where its file has any, are unchecked.",
    "revision": "The repository and its commit are assumed, not confirmed.",
    "copy": "Its file is somebody else's copy, not compared with the publisher's own.",
    "recovered": "Its weights were recovered from an INT8 export of somebody else's: they are the "
    "published ones to within rounding.",
    "threshold": "Its threshold is assumed: the reference system's is not known.",
    "criteria": "No owning criteria are published for its family: those of another one judge it.",
    "tensorrt": "No TensorRT engine of it has run, neither in FP32 nor in FP16.",
}


def _is_gap(name: str) -> str:
    if name not in GAPS:
        raise ValueError(f"no gap {name!r}; there are {', '.join(GAPS)}")
    return name


Gap = Annotated[str, AfterValidator(_is_gap)]


class _Strict(BaseModel):
    # our own files: an unknown field is a mistake and is refused with its path
    model_config = ConfigDict(extra="forbid", frozen=True)


class PagesDataset(_Strict):
    """Document pages drawn by qualification/datasets/pages.py."""

    type: Literal["pages"]


class CocoDataset(_Strict):
    """A folder with `images/` and `instances.json` in COCO's format."""

    type: Literal["coco"]
    folder: str = Field(description="folder under DETSERVE_DATA")
    labels: dict[str, str] | None = Field(
        None,
        description="checkpoint label -> dataset category; labels that are not listed are left "
        "out. Without it, labels and categories of the same name belong together.",
    )
    images: int | None = Field(
        None, ge=1, description="how many of the selection, from its first; all if left out"
    )


class Gates(_Strict):
    """What the dataset gate demands; the owning criteria are the family's."""

    map_drop: float = Field(
        ge=0, le=1, description="how far mAP@[.50:.95] and mAP@.50 may each be below the reference"
    )
    reference_floor: float = Field(
        gt=0, le=1, description="mAP@[.50:.95] that the reference itself must reach"
    )
    published_map: float | None = Field(
        None,
        gt=0,
        le=1,
        description="mAP@[.50:.95] that others state of this checkpoint, on images of theirs: it "
        "stands beside the reference's own, so that one of another checkpoint shows",
    )
    published_map50: float | None = Field(None, gt=0, le=1, description="the same of mAP@.50")


class Proved(_Strict):
    """How far a checkpoint has been proved, as a person states it who saw it.

    Apart from the record that a campaign leaves (models/status.py): that one belongs to a bundle
    on a machine, this one is what the project vouches for.
    """

    status: Status = Field(description="the highest step that was reached")
    note: str = Field(min_length=1, description="on what it was judged, or that it was not")


class Checkpoint(_Strict):
    """Published weights at a pinned revision, and how to run and judge them."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="the checkpoint's name")
    title: str = Field(description="what it detects, in one line")
    family: str = Field(description="folder under models/families/")
    source: Annotated[Source, Field(description="where the published files come from")]
    licence: str = Field(description="licence of the weights, shown when they are fetched")
    canvas: tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]] | None = Field(
        None,
        description="height and width of the network's input in pixels; left out where the "
        "family's input follows the image's size",
    )
    weights: Literal["published", "random"] = Field(
        "published",
        description="random: seeded weights, which prove the whole path and no accuracy; no "
        "status above implemented can come of them",
    )
    precision: Precision = Field(
        description="what a GPU engine computes in; on the CPU fp32, where half is only slower"
    )
    labels: tuple[str, ...] = Field(
        min_length=1, description="by class id: a list, or the name of a set in models/labels.py"
    )
    threshold: float = Field(ge=0, le=1, description="smallest score that is returned")
    dataset: Annotated[PagesDataset | CocoDataset, Field(discriminator="type")] = Field(
        description="images with ground truth for the owning case and the dataset gate"
    )
    gates: Gates
    proved: Proved = Field(
        Proved(status=Status.PLANNED, note="not judged yet"),
        description="how far it has been proved; planned if left out",
    )
    gaps: tuple[Gap, ...] = Field((), description="what is missing in that proof, by name in GAPS")

    @model_validator(mode="before")
    @classmethod
    def _expand_labels(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(name := value.get("labels"), str):
            if name not in LABEL_SETS:
                raise ValueError(f"labels: no set {name!r}; there are {sorted(LABEL_SETS)}")
            return value | {"labels": LABEL_SETS[name]}
        return value

    @model_validator(mode="after")
    def _provable(self) -> Self:
        """Random weights prove no accuracy, and what is proved is proved of certain bytes."""
        if self.proved.status in (Status.PLANNED, Status.IMPLEMENTED):
            return self
        if self.weights == "random" or "weights" in self.gaps:
            raise ValueError("proved.status: random weights reach implemented at most")
        if None in self.source.files.values():
            raise ValueError("proved.status: above implemented, source.files need their sha256")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.family not in family_names():
            raise ValueError(f"family: no {self.family!r}; there are {family_names()}")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels: a label stands twice")
        if len(set(self.gaps)) != len(self.gaps):
            raise ValueError("gaps: a gap stands twice")
        return self


def load(checkpoint: str) -> Checkpoint:
    """The checkpoint of that id.

    Raises:
        CatalogueError: there is none, or the file is not valid; the sentence names the field.
    """
    path = _files().get(checkpoint)
    if path is not None and path.parent != FOLDER and (FOLDER / path.name).exists():
        raise CatalogueError(f"{path.name} in DETSERVE_HOME/catalogue has the id of a shipped one")
    if path is None:
        raise CatalogueError(
            f"no checkpoint {checkpoint!r} in the catalogue; there are {', '.join(known())}"
        )
    try:
        loaded = Checkpoint.model_validate(yaml.safe_load(path.read_bytes()))
    except (ValidationError, yaml.YAMLError) as error:
        raise CatalogueError(f"{path.name}: {summary(error)}") from error
    if loaded.id != checkpoint:
        raise CatalogueError(f"{path.name}: id: must be the file's name, {checkpoint!r}")
    return loaded


def shipped() -> list[str]:
    """Ids of the checkpoints that ship with Detserve, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def known() -> list[str]:
    """Ids of the catalogue, sorted."""
    return sorted(_files())


def _files() -> dict[str, Path]:
    folders = (FOLDER, home() / "catalogue")
    return {path.stem: path for folder in folders for path in folder.glob("*.yaml")}


def summary(error: Exception) -> str:
    """A validation error as one line: each field's path and what is wrong with it."""
    if not isinstance(error, ValidationError):
        return " ".join(str(error).split())
    problems: Sequence[Any] = error.errors()
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'the file'}: "
        f"{'unknown field' if problem['type'] == 'extra_forbidden' else problem['msg']}"
        for problem in problems
    )
