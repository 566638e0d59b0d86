"""What the tests at real size share: the ten random checkpoints, their graphs, and a table.

    make test-checkpoints        # half an hour; needs export-env and reference-env

DETSERVE_TEST_CHECKPOINTS names a folder that keeps the checkpoints over sessions, and
DETSERVE_TEST_HOME one that keeps their bundles. The rows that tests state go to ten.json beside the
checkpoints, which docs/measured/ten.md is made from.
"""

import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from models import building, catalogue
from models.catalogue import Checkpoint
from models.engine import ENGINE_FILES
from models.home import home
from tests import random_ten

Row = Callable[[str, dict[str, Any]], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = [
        name
        for name in ("torch", "transformers", "onnxscript")
        if not importlib.util.find_spec(name)
    ]
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.checkpoints)
            item.add_marker(pytest.mark.timeout(1800))
            if absent:
                reason = f'no {", ".join(absent)} here: pip install "detserve[export]"'
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def folder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = os.environ.get("DETSERVE_TEST_CHECKPOINTS")
    return Path(kept) if kept else tmp_path_factory.mktemp("ten")


@pytest.fixture(scope="session")
def row(folder: Path) -> Row:
    """Add figures to a checkpoint's row of the table."""

    def add(checkpoint: str, figures: dict[str, Any]) -> None:
        path = folder / "ten.json"
        rows = json.loads(path.read_text()) if path.is_file() else {}
        rows[checkpoint] = rows.get(checkpoint, {}) | figures
        path.write_text(json.dumps(rows, indent=1))
        print(f"\n{checkpoint}: {figures}")

    return add


@pytest.fixture(scope="module", params=random_ten.IDS)
def ten(request: pytest.FixtureRequest, folder: Path) -> Checkpoint:
    """Each of the ten in turn, with random weights; the catalogue has it."""
    random_ten.main(folder, [request.param])
    name = f"{request.param}-random.yaml"
    (home() / "catalogue").mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "catalogue" / name, home() / "catalogue" / name)
    return catalogue.load(f"{request.param}-random")


@pytest.fixture(scope="module")
def graph(ten: Checkpoint, row: Row) -> onnx.ModelProto:
    """Its exported FP32 graph: the bundle that the application serves."""
    kept = building.location(ten, "onnxruntime", "fp32").exists()
    began = time.monotonic()
    bundle = building.ensure(ten, "onnxruntime", "fp32", log=print)
    if not kept:
        row(ten.id, {"build_s": time.monotonic() - began})
    made = onnx.load(bundle.folder / ENGINE_FILES["onnxruntime"])
    row(ten.id, {"nodes": len(made.graph.node)})
    return made
