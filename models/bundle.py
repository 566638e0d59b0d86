"""Bundles: what is built from a checkpoint for one engine and precision, and its identity.

A bundle is a folder with the engine file and `bundle.json`. Its identity is the sha256 over the
manifest, which holds the sha256 of every file; it is verified whenever the bundle is opened, is
shown by `/v1/models` and stands in every result row, so that a result belongs to these bytes.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.catalogue import summary
from models.detections import Detections
from models.engine import Engine, EngineName, OnnxRuntimeEngine
from models.errors import BundleError, BundleMismatch
from models.family import family
from models.placement import Placement
from models.precision import Precision

MANIFEST = "bundle.json"
ENGINE_FILE = "engine.onnx"
TRIAL_SIZE = (480, 640)  # height, width of the image that tries out a graph of dynamic size


class Manifest(BaseModel):
    """`bundle.json`. Everything that decides what the bundle answers, and nothing else: no time,
    no machine, no path, so that the same parts give the same identity."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    checkpoint: str = Field(description="id in the catalogue")
    family: str
    engine: EngineName
    precision: Precision
    weights: Literal["published", "random"]
    canvas: tuple[int, int] | None = Field(description="height and width in pixels; None: dynamic")
    labels: tuple[str, ...] = Field(description="by class id")
    threshold: float
    licence: str
    source: dict[str, str] = Field(description="published file -> sha256")
    files: dict[str, str] = Field(description="file of the bundle -> sha256")
    built_with: dict[str, str] = Field(description="package -> version")
    digest: str = Field(description="sha256 over all the fields above in canonical JSON")

    def computed_digest(self) -> str:
        return sha256(canonical(self.model_dump(exclude={"digest"})))


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
            raise BundleMismatch(f"{where}: {MANIFEST}: {summary(error)}") from error
        if manifest.computed_digest() != manifest.digest:
            raise BundleMismatch(f"{where}: {MANIFEST} was changed after the build")
        for name, digest in manifest.files.items():
            path = folder / name
            if not path.is_file():
                raise BundleMismatch(f"{where}: {name} is missing")
            if sha256(path.read_bytes()) != digest:
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


def canonical(value: object) -> bytes:
    """A JSON value in the one form that digests are taken over."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def sha256(data: bytes) -> str:
    """Digest of bytes in memory, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
