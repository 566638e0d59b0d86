"""Bundles: what is built from a checkpoint for one engine and precision, and its identity.

A bundle is a folder with the engine file and `bundle.json`. Its identity is the sha256 over the
manifest, which holds the sha256 of every file; it is verified whenever the bundle is opened, is
shown by `/v1/models` and stands in every result row, so that a result belongs to these bytes.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import filelock
import numpy as np
import onnx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models import catalogue
from models.cache import digests
from models.catalogue import Checkpoint
from models.detections import Detections
from models.engine import Engine, EngineName, OnnxRuntimeEngine, engine_version
from models.errors import BundleError, BundleMismatch
from models.family import family, family_sources
from models.fetch import fetch
from models.home import home
from models.placement import Placement

MANIFEST = "bundle.json"
ENGINE_FILE = "engine.onnx"
TRIAL_SIZE = (480, 640)  # height, width of the image that tries out a graph of dynamic size

Log = Callable[[str], None]


class Manifest(BaseModel):
    """`bundle.json`. Everything that decides what the bundle answers, and nothing else: no time,
    no machine, no path, so that the same parts give the same identity."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    checkpoint: str = Field(description="id in the catalogue")
    family: str
    engine: EngineName
    precision: str
    canvas: tuple[int, int] | None = Field(description="height and width in pixels; None: dynamic")
    labels: tuple[str, ...] = Field(description="by class id")
    threshold: float
    licence: str
    source: dict[str, str] = Field(description="published file -> sha256")
    files: dict[str, str] = Field(description="file of the bundle -> sha256")
    built_with: dict[str, str] = Field(description="package -> version")
    digest: str = Field(description="sha256 over all the fields above in canonical JSON")

    def computed_digest(self) -> str:
        return _sha256(_canonical(self.model_dump(exclude={"digest"})))


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk."""

    folder: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: Path) -> "Bundle":
        """Read and verify.

        Raises:
            BundleMismatch: a file or the manifest is not what was built; the sentence names it.
            BundleError: it is not a bundle.
        """
        where = f"bundle {folder.parent.name}/{folder.name}"
        try:
            manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        except FileNotFoundError as error:
            raise BundleError(f"{where} has no {MANIFEST}") from error
        except ValidationError as error:
            raise BundleMismatch(f"{where}: {MANIFEST}: {catalogue.summary(error)}") from error
        if manifest.computed_digest() != manifest.digest:
            raise BundleMismatch(f"{where}: {MANIFEST} was changed after the build")
        for name, digest in manifest.files.items():
            path = folder / name
            if not path.is_file():
                raise BundleMismatch(f"{where}: {name} is missing")
            if _sha256(path.read_bytes()) != digest:
                raise BundleMismatch(
                    f"{where}: {name} was changed after the build; delete the bundle's folder to "
                    f"have it built again"
                )
        return cls(folder, manifest)

    def engine(self, threads: int) -> Engine:
        """The engine, loaded."""
        return OnnxRuntimeEngine(self.folder / ENGINE_FILE, threads=threads)

    def place(self, image: np.ndarray) -> tuple[Placement, np.ndarray]:
        """image: uint8 [H, W, 3] RGB. Returns where it lies and the canvas, uint8 [1, h, w, 3]."""
        placed = family(self.manifest.family).place(
            (image.shape[0], image.shape[1]), self.manifest.canvas
        )
        return placed, placed.paint(image)[None]

    def decode(
        self, outputs: dict[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        """The engine's outputs for one canvas as detections on the source image."""
        return family(self.manifest.family).decode(outputs, placed, threshold)


def ensure(checkpoint: Checkpoint, engine: EngineName, *, log: Log) -> Bundle:
    """The bundle of that checkpoint, built first when there is none. Progress goes to `log`.

    Several processes may ask at once: one builds, the others wait and open what it built.

    Raises:
        SourceError: the published files cannot be fetched.
        BundleError: they are not what the family expects, or a built file was changed since.
    """
    folder = home() / "bundles" / checkpoint.id / build_key(checkpoint, engine)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{folder}.lock"):
        if not folder.exists():
            build(checkpoint, engine, folder, log=log)
    return Bundle.open(folder)


def build(checkpoint: Checkpoint, engine: EngineName, folder: Path, *, log: Log) -> None:
    """Fetch, export, try and write the bundle to `folder`, which appears whole or not at all."""
    files = fetch(checkpoint.source, checkpoint.id, checkpoint.licence, log=log)
    log(f"{checkpoint.id}: building the {engine} {checkpoint.precision} bundle")
    graph = family(checkpoint.family).export(files, checkpoint.canvas, checkpoint.labels)
    scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=folder.parent))
    try:
        onnx.save(graph, scratch / ENGINE_FILE)
        manifest = seal(scratch, checkpoint, engine)
        _try_out(Bundle(scratch, manifest))
        os.replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    log(f"{checkpoint.id}: built bundle {manifest.digest[:12]}")


def seal(folder: Path, checkpoint: Checkpoint, engine: EngineName) -> Manifest:
    """Write `bundle.json` over the files that lie in `folder`."""
    fields = Manifest(
        checkpoint=checkpoint.id,
        family=checkpoint.family,
        engine=engine,
        precision=checkpoint.precision,
        canvas=checkpoint.canvas,
        labels=checkpoint.labels,
        threshold=checkpoint.threshold,
        licence=checkpoint.licence,
        source=digests(checkpoint.source, checkpoint.id),
        files={ENGINE_FILE: _sha256((folder / ENGINE_FILE).read_bytes())},
        built_with={"onnx": onnx.__version__, engine: engine_version(engine)},
        digest="",
    )
    manifest = fields.model_copy(update={"digest": fields.computed_digest()})
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=1))
    return manifest


def build_key(checkpoint: Checkpoint, engine: EngineName) -> str:
    """Names a bundle's folder: a digest over everything a build depends on, so that nothing is
    built twice and a change of checkpoint, family code or library version builds anew."""
    parts = {
        "checkpoint": checkpoint.model_dump(mode="json", exclude={"title", "dataset", "gates"}),
        "engine": engine,
        "versions": {"onnx": onnx.__version__, engine: engine_version(engine)},
        "family": [_sha256(path.read_bytes()) for path in family_sources(checkpoint.family)],
        "schema_version": Manifest.model_fields["schema_version"].default,
    }
    return _sha256(_canonical(parts))[:16]


def _try_out(bundle: Bundle) -> None:
    """One inference on noise: the engine loads and returns finite values."""
    size = bundle.manifest.canvas or TRIAL_SIZE
    noise = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    placed, canvas = bundle.place(noise)
    outputs = bundle.engine(threads=1).infer(canvas)
    if not all(np.isfinite(values).all() for values in outputs.values()):
        raise BundleError(f"{bundle.manifest.checkpoint}: the engine returns NaN or infinity")
    bundle.decode(outputs, placed, bundle.manifest.threshold)


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
