"""The bundle that a model's arguments ask for: which it is, and opening or first building it.

The same for the replica that serves it, for a campaign that builds before it starts the
application, and for scripts/check_config.py, which only looks.
"""

from dataclasses import dataclass
from pathlib import Path

from deployments.config import ModelArgs
from models import building, catalogue
from models.bundle import Bundle
from models.catalogue import Checkpoint
from models.engine import EngineName
from models.engines.choice import resolve, resolve_precision
from models.home import home
from models.precision import Precision


@dataclass(frozen=True)
class Wanted:
    """A checkpoint's bundle, built or not. reason: why it is that engine's."""

    checkpoint: Checkpoint
    engine: EngineName
    precision: Precision
    reason: str

    @property
    def folder(self) -> Path:
        return building.location(self.checkpoint, self.engine, self.precision)


def wanted(args: ModelArgs) -> Wanted:
    """What `args`, which name a checkpoint and no bundle, mean on this machine.

    Raises:
        CatalogueError: there is no such checkpoint.
        BundleError: an engine that cannot run here is asked for.
    """
    assert args.checkpoint is not None
    checkpoint = catalogue.load(args.checkpoint)
    choice = resolve(args.engine, gpus=args.resources.gpus)
    precision = resolve_precision(args.precision, choice.engine, checkpoint.precision)
    return Wanted(checkpoint, choice.engine, precision, choice.reason)


def given(bundle: str) -> Path:
    """The folder that `bundle` of serve_config.yaml names."""
    return home() / "bundles" / Path(bundle).expanduser()


def open_or_build(args: ModelArgs, log: building.Log) -> tuple[Bundle, str]:
    """The bundle, built first where a checkpoint has none, and why it is that engine's.

    Raises:
        as `wanted` and `models.building.ensure`.
    """
    if args.bundle is not None:
        return Bundle.open(given(args.bundle)), "the bundle was built for it"
    want = wanted(args)
    log(f"{want.checkpoint.id}: engine {want.engine}, {want.reason}")
    return building.ensure(want.checkpoint, want.engine, want.precision, log=log), want.reason
