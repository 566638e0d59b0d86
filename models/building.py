"""Builds bundles: published files in, graph, precision, engine file, manifest, first inference.

`ensure` is the only way the application and the command lines come by a bundle, so that nothing is
built twice and nothing that changed is taken for built.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import filelock
import numpy as np
import onnx

from models import gpu
from models.bundle import (
    MANIFEST,
    TRIAL_SIZE,
    BuiltOn,
    Bundle,
    Manifest,
    canonical,
    sha256,
)
from models.cache import digests
from models.catalogue import Checkpoint
from models.engine import ENGINE_FILES, EngineName
from models.engine_memory import measured_mib
from models.engines.choice import engine_version
from models.errors import BundleError, SourceError
from models.family import family, family_sources
from models.fetch import fetch
from models.home import home
from models.precision import Precision, to_fp16
from models.tensorrt_build import build_engine

EXPORTED_WITH = "exported_with."  # prefix of a graph's metadata: a package and its version

Log = Callable[[str], None]


def ensure(checkpoint: Checkpoint, engine: EngineName, precision: Precision, *, log: Log) -> Bundle:
    """The bundle of that checkpoint, built first when there is none or when it was built from
    other files than those now in the cache. Progress goes to `log`.

    Several processes may ask at once: one builds, the others wait and open what it built.

    Raises:
        SourceError: the published files cannot be fetched.
        BundleError: they are not what the family expects, or a built file was changed since.
    """
    folder = location(checkpoint, engine, precision)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{folder}.lock"):
        if folder.exists() and _source_changed(Bundle.open(folder), checkpoint):
            log(f"{checkpoint.id}: its files are others than the bundle was built from")
            shutil.rmtree(folder)
        if not folder.exists():
            _build(checkpoint, engine, precision, folder, log)
    return Bundle.open(folder)


def location(checkpoint: Checkpoint, engine: EngineName, precision: Precision) -> Path:
    """The bundle's folder, built or not. It is named by everything a build depends on but the
    files, so that a change of checkpoint, family code or library version builds anew."""
    parts = {
        "checkpoint": checkpoint.model_dump(
            mode="json", exclude={"title", "dataset", "gates", "precision", "proved", "gaps"}
        ),
        "engine": engine,
        "precision": precision,
        "versions": {"onnx": onnx.__version__, engine: engine_version(engine)},
        "gpu": None if engine == "onnxruntime" else str(gpu.find()),
        "family": [sha256(path.read_bytes()) for path in family_sources(checkpoint.family)],
        "schema_version": Manifest.model_fields["schema_version"].default,
    }
    return home() / "bundles" / checkpoint.id / sha256(canonical(parts))[:16]


def _build(
    checkpoint: Checkpoint, engine: EngineName, precision: Precision, folder: Path, log: Log
) -> None:
    """Fetch, export, try and write the bundle to `folder`, which appears whole or not at all."""
    files = fetch(checkpoint.source, checkpoint.id, checkpoint.licence, log=log)
    log(f"{checkpoint.id}: building the {engine} {precision} bundle")
    owner = family(checkpoint.family)
    graph = owner.export(files, checkpoint.canvas, checkpoint.labels)
    if precision == "fp16":
        graph = to_fp16(graph, owner.islands)
    scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=folder.parent))
    try:
        path = scratch / ENGINE_FILES[engine]
        if engine == "tensorrt":
            sizes = owner.sizes if checkpoint.canvas is None else None
            path.write_bytes(build_engine(graph, sizes, log=log).serialised)
        else:
            onnx.save(graph, path)
        manifest = seal(scratch, checkpoint, engine, precision, _exported_with(graph))
        _try_out(Bundle(scratch, manifest))
        if manifest.gpu is not None:
            memory = measured_mib(scratch)
            log(f"{checkpoint.id}: takes {memory} MiB of the GPU's memory")
            manifest = _write(scratch, _with_memory(manifest, memory))
        os.replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    log(f"{checkpoint.id}: built bundle {manifest.digest[:12]}")


def seal(
    folder: Path,
    checkpoint: Checkpoint,
    engine: EngineName,
    precision: Precision,
    exported_with: dict[str, str],
) -> Manifest:
    """Write `bundle.json` over the files that lie in `folder`.

    exported_with: package -> version, of what made the graph.
    """
    file, found = ENGINE_FILES[engine], None if engine == "onnxruntime" else gpu.find()
    fields = Manifest(
        checkpoint=checkpoint.id,
        family=checkpoint.family,
        engine=engine,
        precision=precision,
        weights=checkpoint.weights,
        canvas=checkpoint.canvas,
        labels=checkpoint.labels,
        threshold=checkpoint.threshold,
        licence=checkpoint.licence,
        source=digests(checkpoint.source, checkpoint.id),
        files={file: sha256((folder / file).read_bytes())},
        built_with={
            "onnx": onnx.__version__,
            engine: engine_version(engine),
            **exported_with,
        },
        gpu=None
        if found is None
        else BuiltOn(
            name=found.name,
            compute_capability=found.compute_capability,
            driver=found.driver,
            cuda=found.cuda,
            memory_mib=None,
        ),
        digest="",
    )
    return _write(folder, fields)


def _with_memory(manifest: Manifest, mib: int) -> Manifest:
    assert manifest.gpu is not None  # what is measured runs on one
    return manifest.model_copy(
        update={"gpu": manifest.gpu.model_copy(update={"memory_mib": mib})},
    )


def _write(folder: Path, fields: Manifest) -> Manifest:
    """`bundle.json` with the digest that belongs to its fields."""
    manifest = fields.model_copy(update={"digest": fields.computed_digest()})
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=1))
    return manifest


def _source_changed(bundle: Bundle, checkpoint: Checkpoint) -> bool:
    """Whether the cache is known to hold other files. Files that are gone are no reason: a bundle
    serves without what it was built from."""
    try:
        return digests(checkpoint.source, checkpoint.id) != bundle.manifest.source
    except SourceError:
        return False


def _exported_with(graph: onnx.ModelProto) -> dict[str, str]:
    return {
        each.key.removeprefix(EXPORTED_WITH): each.value
        for each in graph.metadata_props
        if each.key.startswith(EXPORTED_WITH)
    }


def _try_out(bundle: Bundle) -> None:
    """One inference on noise in each slot: the engine loads and returns finite values."""
    size = bundle.manifest.canvas or TRIAL_SIZE
    noise = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    placed, canvas = bundle.place(noise)
    engine = bundle.engine(threads=1)
    try:
        for slot in range(engine.slots):
            outputs = engine.infer(canvas, slot)
            if not all(np.isfinite(values).all() for values in outputs.values()):
                raise BundleError(
                    f"{bundle.manifest.checkpoint}: the engine returns NaN or infinity"
                )
            bundle.decode(outputs, placed, bundle.manifest.threshold)
    finally:
        engine.close()
