"""What the transformers tests share: checkpoints made once a session, and images of every shape."""

import importlib.util
import io
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from PIL import Image

from models import home
from models.criteria import MatchedCriteria
from models.engines.onnxruntime_cpu import OnnxRuntimeEngine
from models.family import family
from models.images import decode
from models.labels import COCO80, COCO91
from models.torch_process import torch_environment

LABELS = {"detr": COCO91, "yolos": COCO91, "rt_detr": COCO80, "deformable_detr": COCO91}
CANVASES = {"detr": None, "yolos": (512, 864), "rt_detr": (640, 640), "deformable_detr": None}

AIM = MatchedCriteria(iou=0.99, score=0.001)  # far inside the owning gates

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None,
    reason='needs torch and transformers: pip install "detserve[export]"',
)


def in_torch(*arguments: str) -> str:
    """What `python ARGUMENTS` printed, in a process that may import torch; fails with its error."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        env=torch_environment() | {"DETSERVE_DATA": str(home.data())},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def checkpoint(kind: str, size: str, folder: Path) -> Mapping[str, Path]:
    """The files of a seeded random checkpoint (tests/models/random_transformers.py).

    DETSERVE_TEST_CHECKPOINTS keeps them over sessions, where making one takes minutes.
    """
    kept = os.environ.get("DETSERVE_TEST_CHECKPOINTS")
    made = (Path(kept) if kept else folder) / f"{kind}-{size}"
    if not (made / "model.safetensors").is_file():
        in_torch("-m", "tests.models.random_transformers", kind, size, str(made))
    return {path.name: path for path in made.iterdir() if path.is_file()}


@cache
def pictures() -> dict[str, bytes]:
    """Encoded images from COCO, by what is special about their shape."""
    opened = [
        Image.open(path).convert("RGB")
        for path in sorted((home.data() / "coco128" / "images").glob("*.jpg"))
    ]
    wide = [image for image in opened if image.width > image.height]
    tall = [image for image in opened if image.width < image.height]
    shaped = {
        "landscape": wide[0],
        "portrait": tall[0],
        "square": wide[5].crop((0, 0, 400, 400)),
        "tiny": wide[6].resize((32, 24)),
        "longer than 1333": wide[7].resize((1999, 1201)),
        "tall strip": tall[2].resize((401, 1777)),
        "flat strip": wide[9].resize((1600, 60)),
        "odd": wide[3].resize((641, 427)),
    }
    return {name: _png(image) for name, image in shaped.items()}


def _png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


@dataclass
class Figures:
    """Our graph, placement and decoding against transformers' own pipeline over `pictures`."""

    problems: dict[str, str] = field(default_factory=dict)
    iou: float = 1.0  # the lowest of all pairs
    score: float = 0.0  # the largest difference
    kept: int = 0
    queries: int = 0
    classes: set[int] = field(default_factory=set)
    engine_s: list[float] = field(default_factory=list)


def against_published(name: str, files: Mapping[str, Path], graph: Path) -> Figures:
    served, labels, canvas = family(name), LABELS[name], CANVASES[name]
    engine = OnnxRuntimeEngine(graph, threads=2)
    reference = served.reference(files, canvas, labels)
    figures = Figures()
    for shape, encoded in pictures().items():
        image = decode(encoded, max_pixels=10**7)
        placed = served.place((image.shape[0], image.shape[1]), canvas)
        began = time.monotonic()
        outputs = engine.infer(placed.paint(image)[None])
        figures.engine_s.append(time.monotonic() - began)
        native = served.decode(outputs, placed, 0.5)
        compared = AIM.compare(native, labels, reference(encoded, 0.5), reference.labels)
        if compared.problem is not None:
            figures.problems[shape] = f"{compared.problem} {compared.differences}"
        figures.iou = min(figures.iou, compared.differences.get("iou", 0.0))
        figures.score = max(figures.score, compared.differences.get("score", 1.0))
        figures.kept += len(native)
        figures.queries += outputs["scores"].shape[1]
        figures.classes |= set(native.class_ids.tolist())
    return figures
