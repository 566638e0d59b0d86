"""The four Hugging Face families at the published size against transformers' own pipeline.

Minutes a family on two cores. Weights are random: nothing here says how well a checkpoint detects.
"""

import time
from pathlib import Path

import onnx
import pytest

from models.family import family
from tests.models.transformers_cases import (
    CANVASES,
    LABELS,
    against_published,
    checkpoint,
    needs_torch,
)


@needs_torch
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(LABELS))
def test_at_real_size_detections_equal_transformers_own_pipeline(
    name: str, data: Path, tmp_path: Path
) -> None:
    files = checkpoint(name, "real", tmp_path)
    began = time.monotonic()
    graph = family(name).export(files, CANVASES[name], LABELS[name])
    exported_s = time.monotonic() - began
    onnx.save(graph, tmp_path / "engine.onnx")
    found = against_published(name, files, tmp_path / "engine.onnx")
    engine = ", ".join(f"{seconds:.2f}" for seconds in found.engine_s)
    print(
        f"\n{name}: {len(graph.graph.node)} nodes exported in {exported_s:.0f} s; "
        f"{found.kept} of {found.queries} queries in {len(found.classes)} classes; worst IoU "
        f"{found.iou:.6f}, worst score {found.score:.2e}; engine s an image: {engine}"
    )
    assert found.problems == {}
    assert 80 < found.kept < found.queries
    assert len(found.classes) > 10
