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

from models import gpu
from models.catalogue import summary
from models.detections import Detections
from models.engine import ENGINE_FILES, Engine, EngineName
from models.engines.choice import engine_version, open_engine
from models.errors import BundleError, BundleMismatch
from models.family import family
from models.placement import Placement
from models.precision import Precision

MANIFEST = "bundle.json"
TRIAL_SIZE = (480, 640)  # height, width of the image that tries out a graph of dynamic size


class BuiltOn(BaseModel):
    """The GPU that a bundle was built on and for, and what it takes of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    compute_capability: str = Field(description="such as 9.0")
    driver: str = Field(description="release of NVIDIA's driver")
    cuda: str = Field(description="version of CUDA that the driver has")
    memory_mib: int | None = Field(
        description="GPU memory of a process that serves the bundle, CUDA's own part included; "
        "null: not measured yet"
    )


class Manifest(BaseModel):
    """`bundle.json`. Everything that decides what the bundle answers, and nothing else: no time,
    no path and no machine but the GPU, so that the same parts give the same identity."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[2] = 2
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
    gpu: BuiltOn | None = Field(description="null: the engine runs on the CPU")
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

    def engine(self, threads: int, max_batch: int = 1) -> Engine:
        """The engine, loaded. max_batch: canvases that one inference may take.

        Raises:
            BundleMismatch: it was built for another GPU or another TensorRT.
            BundleError: it cannot be loaded, or a batch would change an answer.
        """
        manifest = self.manifest
        self._must_be_built_for_here()
        sizes = family(manifest.family).sizes
        largest = manifest.canvas or (TRIAL_SIZE if sizes is None else sizes.largest)
        path = self.folder / ENGINE_FILES[manifest.engine]
        try:
            return open_engine(
                manifest.engine, path, largest=largest, threads=threads, max_batch=max_batch
            )
        except BundleError as error:
            if max_batch == 1:
                raise
            raise BundleError(f"max_batch {max_batch} of {manifest.checkpoint}: {error}") from error

    def _must_be_built_for_here(self) -> None:
        manifest = self.manifest
        if manifest.gpu is None:
            return
        found, built = gpu.find(), manifest.gpu
        there, here = [built.name, built.compute_capability], ["no NVIDIA GPU"]
        if found is not None:
            here = [found.name, found.compute_capability]
        if manifest.engine == "tensorrt":
            there.append(f"TensorRT {manifest.built_with['tensorrt']}")
            here.append(f"TensorRT {engine_version('tensorrt')}")
        if there != here:
            raise BundleMismatch(
                f"bundle {self.folder.parent.name}/{self.folder.name} was built for "
                f"{', '.join(there)} and this machine has {', '.join(here)}: give `checkpoint: "
                f"{manifest.checkpoint}` instead of `bundle` in serve_config.yaml to have one built"
            )

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
