"""`Family`: what one detector architecture owns.

Everything that differs between architectures hides behind this interface; shared code never asks
which family it holds. A family is one folder under `models/families/` whose module exposes
`FAMILY`; docs/adding-a-model.md says how to write one.
"""

import ast
import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx

from models import families
from models.criteria import Criteria
from models.detections import Detections
from models.graph import SizeRange
from models.placement import Placement
from models.precision import Islands


class Reference(Protocol):
    """The published model, run without any part of the served path."""

    @property
    def labels(self) -> Sequence[str]:
        """By class id, from the published model itself where it names them."""
        ...

    def __call__(self, image: bytes, threshold: float) -> Detections:
        """image: an encoded JPEG or PNG."""
        ...


class Family(Protocol):
    """Preprocessing, graph, decoding, suppression, reference and criteria of an architecture."""

    criteria: Criteria  # the owning case: how close to the reference is right
    islands: Islands  # what stays FP32 in an FP16 bundle

    @property
    def sizes(self) -> SizeRange | None:
        """What `place` makes of images where the input follows their size; None: it is fixed."""
        ...

    def export(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> onnx.ModelProto:
        """The graph of a bundle (uint8 canvas in, one box an anchor out; see models/graph.py).

        Raises:
            BundleError: the files are not a checkpoint of this family, canvas and label list.
        """
        ...

    def place(self, source: tuple[int, int], canvas: tuple[int, int] | None) -> Placement:
        """Where an image of `source` (height, width) lies on the canvas; None: the family's input
        follows the image's size."""
        ...

    def decode(
        self, outputs: Mapping[str, np.ndarray], placed: Placement, threshold: float
    ) -> Detections:
        """The engine's outputs for one canvas as detections on the source image."""
        ...

    def reference(
        self, files: Mapping[str, Path], canvas: tuple[int, int] | None, labels: Sequence[str]
    ) -> Reference:
        """The family's independent reference.

        canvas: the catalogue's; a reference takes it from the published files where they say it.

        Raises:
            BundleError: the files cannot be loaded, or the reference's environment
                (models/references) cannot run them.
        """
        ...


def family_names() -> list[str]:
    """Names of the families there are, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(families.__path__))


def family(name: str) -> Family:
    """The family of that name; `name` comes from a validated checkpoint."""
    found: Family = importlib.import_module(f"models.families.{name}").FAMILY
    return found


def family_sources(name: str) -> list[Path]:
    """The Python files that decide what a bundle of this family holds, sorted: its folder, and
    what that imports of this package, over any number of steps. Of a library in a folder of its
    own (models/ultralytics) all files count: some run as commands and are imported by none.

    References are left out, whoever imports them: they judge a bundle, and none is built anew
    because its judge changed. They are models/references and modules named `reference` or
    `..._reference`."""
    here = Path(__file__).parent
    pending = list((here / "families" / name).glob("*.py"))
    found: set[Path] = set()
    while pending:
        path = pending.pop()
        if path in found or _is_reference(path.relative_to(here)):
            continue
        found.add(path)
        for module in _imported(path):
            file = here.parent.joinpath(*module.split(".")).with_suffix(".py")
            library = file.parent if file.parent != here else file.with_suffix("")
            pending += [file] if file.is_file() else []
            pending += library.glob("*.py") if (library / "__init__.py").is_file() else []
    return sorted(found)


def _is_reference(path: Path) -> bool:
    """path: of a module of this package, from its folder."""
    return path.parts[0] == "references" or path.stem.split("_")[-1] == "reference"


def _imported(path: Path) -> Iterator[str]:
    """Modules of this package that a file imports, lazily or not."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("models."):
            yield str(node.module)
