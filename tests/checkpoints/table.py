"""docs/measured/ten.md out of the rows that `make test-checkpoints` left.

python -m tests.checkpoints.table CHECKPOINTS/ten.json > docs/measured/ten.md
"""

import json
import sys
from pathlib import Path
from typing import Any

from models.catalogue import FOLDER
from tests import random_ten

HEAD = """# The ten at real size, random weights

Made by `make test-checkpoints` and `python -m tests.checkpoints.table`. The weights are seeded
random numbers in the published formats ([tests/random_ten.py](../../tests/random_ten.py)): the
figures prove exports, placements, decoding and builds, and say nothing about accuracy.

Machine: {machine}.

## The application's answers against the published implementation, FP32

What a client gets over HTTP (ONNX Runtime on the CPU) against transformers' or ultralytics' own
preprocessing, model and post-processing, on eight images of different shapes: landscape, portrait,
square, tiny (24x32), longer than 1333 (1201x1999), a tall and a flat strip (1777x401, 60x1600), and
an odd one (427x641). The gates are the families': YOLO the same count, class at rank, score
< 0.005, side < 1 px; the DETR families IoU ≥ 0.5, score ≤ 0.05.

| checkpoint | nodes | boxes | worst score | worst side, px | worst IoU | build, s | answer, ms |
|---|---|---|---|---|---|---|---|
{parity}

## FP16 against FP32, and TensorRT's builder

FP16: the converted graph with every result rounded to half, on the same images; medians over the
hundred best candidates of an image and over the images, because random weights multiply rounding
([half-precision.md](../decisions/half-precision.md)). Builds: `tensorrt_rtx` {rtx}, ahead of time
on the CPU; the dynamic ones for every size that their rule gives.

| checkpoint | FP16 side, px | score | IoU | FP32, s | MB | warnings | FP16, s | MB | warnings |
|---|---|---|---|---|---|---|---|---|---|
{builds}
{warnings}"""


def main(rows: dict[str, dict[str, Any]], machine: str, rtx: str) -> str:
    parity, builds, said = [], [], []
    for checkpoint in random_ten.IDS:
        assert (FOLDER / f"{checkpoint}.yaml").is_file()
        row = rows[f"{checkpoint}-random"]
        cells = [
            checkpoint,
            str(row["nodes"]),
            str(row["boxes"]),
            f"{row['worst_score']:.1e}",
            f"{row['worst_side_px']:.4f}" if "worst_side_px" in row else "",
            f"{row['worst_iou']:.5f}" if "worst_iou" in row else "",
            f"{row['build_s']:.0f}",
            f"{row['answer_ms_median']:.0f}",
        ]
        parity.append("| " + " | ".join(cells) + " |")
        cells = [checkpoint, f"{row['half_side_px']:.3f}", f"{row['half_score']:.5f}"]
        cells.append(f"{row['half_iou']:.4f}")
        for precision in ("fp32", "fp16"):
            warnings = row[f"{precision}_warnings"]
            cells += [f"{row[f'{precision}_build_s']:.1f}", f"{row[f'{precision}_mb']:.1f}"]
            cells += [str(len(warnings))]
            said += [f"{checkpoint} {precision}: {warning}" for warning in warnings]
        builds.append("| " + " | ".join(cells) + " |")
    warnings = "\nWarnings:\n\n" + "".join(f"- {each}\n" for each in said) if said else ""
    return HEAD.format(
        machine=machine,
        rtx=rtx,
        parity="\n".join(parity),
        builds="\n".join(builds),
        warnings=warnings,
    )


if __name__ == "__main__":
    from importlib.metadata import version

    from qualification.environment import read

    here = read()
    machine = f"{here.cpu}, {here.cores} cores, no GPU, shared with other work"
    rows = json.loads(Path(sys.argv[1]).read_text())
    print(main(rows, machine, version("tensorrt-rtx-cu13")), end="")
