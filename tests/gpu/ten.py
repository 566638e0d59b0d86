"""All ten architectures and the two real checkpoints on one GPU at once, through the application.

    python -m tests.gpu.ten GRAPHS OUT

GRAPHS holds `<id>-random.onnx`, the ten FP16 graphs: a GPU host that reaches no package index has
no exporter, so what `tests/random_ten.py` and an export made elsewhere are brought along. OUT gets
the table (ten.json), the campaign on the two real checkpoints, and their report. DETSERVE_DATA has
the real ones. Needs ONNX Runtime's CUDA provider.
"""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import yaml

from models import building, catalogue, gpu, home
from models.bundle import Bundle
from models.family import family
from tests import random_ten

PROJECT = Path(__file__).resolve().parents[2]
CONFIG = PROJECT / "configs" / "h200-onnxruntime.yaml"
REAL = ("yolov8n-coco", "yolo11n-320")
ENGINE = "onnxruntime-cuda"
REQUESTS = 20


def main(graphs: Path, out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    rows = {name: built(name, graphs) for name in (*random_ten.IDS, *REAL)}
    (out / "ten.json").write_text(json.dumps(rows, indent=1))
    config = yaml.safe_load(CONFIG.read_text())
    for application in config["applications"][1:]:
        if application["name"] not in REAL:
            application["args"]["checkpoint"] += "-random"
    (out / "serve_config.yaml").write_text(yaml.safe_dump(config))
    measured(out / "serve_config.yaml", rows)
    (out / "ten.json").write_text(json.dumps(rows, indent=1))
    command = [sys.executable, PROJECT / "scripts" / "qualify.py", "--config"]
    command += [out / "serve_config.yaml", "--out", out / "campaign"]
    for name in REAL:
        command += ["--model", name]
    return subprocess.run(command, check=False).returncode


def built(name: str, graphs: Path) -> dict[str, Any]:
    """The model's CUDA bundle, from its published file or from the graph brought along."""
    began = time.perf_counter()
    if name in REAL:
        bundle = building.ensure(catalogue.load(name), ENGINE, "fp16", log=print)
    else:
        bundle = _from_graph(name, graphs / f"{name}-random.onnx")
    manifest = bundle.manifest
    assert manifest.gpu is not None
    return {
        "build_s": time.perf_counter() - began,
        "engine_mb": sum((bundle.folder / file).stat().st_size for file in manifest.files) / 1e6,
        "gpu_memory_mib": manifest.gpu.memory_mib,
        "precision": manifest.precision,
    }


def _from_graph(name: str, graph: Path) -> Bundle:
    entry = yaml.safe_load((catalogue.FOLDER / f"{name}.yaml").read_bytes())
    digest = hashlib.sha256(graph.read_bytes()).hexdigest()
    source = {"type": "local", "folder": str(graph.parent), "files": {graph.name: digest}}
    entry |= {"id": f"{name}-random", "source": source, "weights": "random"}
    entry |= {"dataset": entry["dataset"] | {"images": random_ten.IMAGES}}
    for field in ("proved", "gaps"):
        entry.pop(field, None)
    folder = home.home() / "catalogue"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-random.yaml").write_text(yaml.safe_dump(entry))
    checkpoint = catalogue.load(f"{name}-random")

    def brought(files: Mapping[str, Path], *_: object) -> onnx.ModelProto:
        return onnx.load(next(iter(files.values())))

    with (
        mock.patch.object(type(family(checkpoint.family)), "export", lambda self, *a: brought(*a)),
        mock.patch.object(building, "to_fp16", lambda graph, islands: graph),
    ):
        return building.ensure(checkpoint, ENGINE, "fp16", log=print)


def measured(config: Path, rows: dict[str, dict[str, Any]]) -> None:
    """Serve all at once; first and median request, and the GPU's memory with everything loaded."""
    from deployments import settings

    settings.apply()
    from qualification import launch
    from qualification.client import Client
    from qualification.datasets import coco

    images = [
        image.path.read_bytes()
        for image in coco.load(catalogue.load(REAL[0]).dataset).images[:REQUESTS]
    ]
    card = gpu.find()
    assert card is not None
    before = gpu.used_memory(card)
    began = time.perf_counter()
    with launch.application(config, print) as url:
        entries = launch.wait_until_settled(url, None, print)
        ready_s = time.perf_counter() - began
        client = Client(url)
        for name, entry in entries.items():
            assert entry["ready"], entry
            times = []
            for image in images:
                sent = time.perf_counter()
                status, body = client.infer(name, [image])
                times.append((time.perf_counter() - sent) * 1e3)
                assert status == 200, body
            rows[name] |= {
                "engine": entry["engine"],
                "first_ms": times[0],
                "median_ms": sorted(times[1:])[len(times) // 2],
            }
        rows["all"] = {
            "gpu": str(card),
            "driver": card.driver,
            "ready_s": ready_s,
            "gpu_memory_mib": (gpu.used_memory(card) - before) / (1 << 20),
        }
        client.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
