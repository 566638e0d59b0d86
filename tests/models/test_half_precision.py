"""FP16 bundles of real weights against FP32, by the owning case that an FP16 bundle is held to.

The graph's rounding is carried out on the CPU (half.py); ONNX Runtime's own CPU run would leave
most of it out. On a GPU the twin of this is tests/gpu.
"""

from pathlib import Path

import onnx
import pytest

from models import building, catalogue
from models.detections import Detections
from models.engines.onnxruntime_cpu import OnnxRuntimeEngine
from models.family import family
from models.images import decode
from models.precision import Islands, to_fp16
from qualification import gates
from qualification.evidence import Seen
from qualification.gates import Gate, HalfCase
from tests.models.half import rounding
from tests.models.transformers_cases import pictures


def judged(checkpoint: str, folder: Path, islands: Islands | None) -> Gate:
    """The owning case of the checkpoint in FP16, its FP32 bundle being the reference."""
    chosen = catalogue.load(checkpoint)
    owner = family(chosen.family)
    built = building.ensure(chosen, "onnxruntime", "fp32", log=print)
    single = onnx.load(built.folder / "engine.onnx")
    onnx.save(
        rounding(to_fp16(single, owner.islands if islands is None else islands)),
        folder / "half.onnx",
    )
    engines = [OnnxRuntimeEngine(folder / "half.onnx", threads=1), built.engine(threads=1)]
    below = chosen.threshold - owner.criteria.score
    seen: list[list[Seen]] = [[], [], [], []]
    for name, encoded in pictures().items():
        placed, canvas = built.place(decode(encoded, 10**7))
        for side, engine in enumerate(engines):
            outputs = engine.infer(canvas)
            for low, threshold in enumerate((chosen.threshold, below)):
                found: Detections = built.decode(outputs, placed, threshold)
                seen[2 * low + side].append(Seen.of(name, found, chosen.labels))
    half = HalfCase(seen[2], seen[3], chosen.threshold)
    labels = chosen.labels
    return gates.owning_case(owner.criteria, seen[0], labels, seen[1], labels, half)


@pytest.mark.parametrize("checkpoint", ["yolov8n-coco", "yolo11n-320"])
def test_half_precision_passes_the_family_s_owning_case(
    checkpoint: str, data: Path, tmp_path: Path
) -> None:
    gate = judged(checkpoint, tmp_path, None)
    print(f"\n{checkpoint}: {gate.measured}")
    assert gate.passed, gate.detail
    assert gate.measured["boxes"]


def test_decoding_boxes_in_half_precision_shows_in_their_sides(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The past bug: half is 0.5 pixel coarse above 512 (0.21 px as it is, 0.92 with it)."""
    right = judged("yolov8n-coco", tmp_path, None)
    monkeypatch.setattr("models.precision._Conversion._decoding", lambda self, islands: set())
    wrong = judged("yolov8n-coco", tmp_path, Islands(names=(r"model\.[0-4]/",)))
    assert right.measured["side_px"] < 0.5 < wrong.measured["side_px"]
