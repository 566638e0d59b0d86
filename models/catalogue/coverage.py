"""The coverage matrix: docs/checkpoints.md, made from the catalogue.

Why made: a table kept by hand says one thing and the catalogue another. What a file leaves to the
family (how an image is laid on the input, whether the threshold itself is enough) is read off what
the family's code does with a probe, so the page cannot say what is not served.
"""

from collections.abc import Sequence

import numpy as np

from models.catalogue import GAPS, Checkpoint, CocoDataset, load, shipped
from models.family import family
from models.labels import LABEL_SETS
from models.status import Status

HEAD = """# The checkpoints

<!-- made by scripts/checkpoints.py --write from models/catalogue/*.yaml: edit those -->

What is catalogued and how far each of it is proved. `scripts/checkpoints.py` makes this page from
models/catalogue/; a test fails when it is not up to date. [adding-a-model.md](adding-a-model.md)
shows how to add one, [results.md](results.md) explains gates and statuses.

## How far each is proved
"""

STATUSES = """
Here a status is what the project vouches for. What a campaign found on your machine, on your
bundle, is in its report and in `/v1/models`.
"""

SERVED = """
## What is served

A threshold with > is not enough by itself, one with ≥ is. Precision is a GPU engine's; on the CPU
it is FP32. Of the owning criteria, `score` and `side_px` (source pixels) are bounds that a
difference stays below, `iou` is the least overlap with the reference's box; of the dataset gate,
`drop` is how far mAP@[.50:.95] and mAP@.50 may each be below the reference's, and `floor` what the
reference's own mAP@[.50:.95] must reach. "First fetch" means that the sha256 of the files is
recorded when they first arrive, and is checked ever after.
"""


def page() -> str:
    """The whole of docs/checkpoints.md.

    Raises:
        CatalogueError: a file of the catalogue is not valid.
    """
    checkpoints = [load(name) for name in shipped()]
    named = {gap for checkpoint in checkpoints for gap in checkpoint.gaps}
    parts = [
        HEAD,
        _summary(checkpoints),
        _table(
            ["checkpoint", "task", "status", "judged", "gaps"],
            [_proof(checkpoint) for checkpoint in checkpoints],
        ),
        STATUSES,
        "The gaps by name:\n",
        *(f"- **{gap}**: {meaning}" for gap, meaning in GAPS.items() if gap in named),
        SERVED,
        _table(
            [
                "checkpoint",
                "publisher@revision",
                "sha256",
                "family",
                "input",
                "labels",
                "threshold",
                "precision",
                "owning criteria",
                "dataset gate",
                "licence",
            ],
            [_facts(checkpoint) for checkpoint in checkpoints],
        ),
    ]
    return "\n".join(parts) + "\n"


def input_rule(checkpoint: Checkpoint) -> str:
    """How an image is laid on the network's input, read off a white image laid on it."""
    owner = family(checkpoint.family)

    def painted(height: int, width: int) -> np.ndarray:
        white = np.full((height, width, 3), 255, np.uint8)
        return owner.place((height, width), checkpoint.canvas).paint(white)

    if checkpoint.canvas is None:
        square, long = painted(100, 100), painted(100, 1000)
        return (
            f"follows the image: shorter side to {min(square.shape[:2])}, longer at most "
            f"{max(long.shape[:2])}, aspect kept, no padding"
        )
    height, width = checkpoint.canvas
    rows = painted(height, 2 * width)[:, 0, 0]  # twice as wide: half the rows are padding, if any
    inside = np.flatnonzero(rows == 255)
    if len(inside) == height:
        return f"{height} high, {width} wide: stretched"
    where = "at the top left" if inside[0] == 0 else "centred"
    return f"{height} high, {width} wide: letterboxed {where}, pad {rows[-1]}"


def threshold_rule(checkpoint: Checkpoint) -> str:
    """The threshold and whether a score equal to it is enough, read off one that is equal."""
    owner, threshold = family(checkpoint.family), checkpoint.threshold
    outputs = {
        "boxes": np.array([[[0, 0, 1, 1]]], np.float32),
        "scores": np.array([[threshold]], np.float32),
        "class_ids": np.zeros((1, 1), np.int32),
    }
    found = owner.decode(outputs, owner.place((64, 64), checkpoint.canvas), threshold)
    return f"{'≥' if len(found) else '>'} {threshold:g}"


def _summary(checkpoints: Sequence[Checkpoint]) -> str:
    """How many there are of each status, the highest first."""
    counts = dict.fromkeys(reversed(Status), 0)
    for checkpoint in checkpoints:
        counts[checkpoint.proved.status] += 1
    said = ", ".join(f"{count} {status.value}" for status, count in counts.items())
    return f"{len(checkpoints)} checkpoints: {said}.\n"


def _proof(checkpoint: Checkpoint) -> list[str]:
    proved = checkpoint.proved
    return [
        checkpoint.id,
        checkpoint.title,
        proved.status.value,
        proved.note,
        ", ".join(checkpoint.gaps) or "none",
    ]


def _facts(checkpoint: Checkpoint) -> list[str]:
    gates, dataset = checkpoint.gates, checkpoint.dataset
    judged_on = dataset.folder if isinstance(dataset, CocoDataset) else "drawn pages"
    bounds = family(checkpoint.family).criteria.bounds()
    stated = {"mAP": gates.published_map, "mAP50": gates.published_map50}
    published = "".join(f", published {name} {value:g}" for name, value in stated.items() if value)
    return [
        checkpoint.id,
        checkpoint.source.address,
        "pinned" if all(checkpoint.source.files.values()) else "first fetch",
        checkpoint.family,
        input_rule(checkpoint),
        _label_space(checkpoint.labels),
        threshold_rule(checkpoint),
        checkpoint.precision,
        ", ".join(f"{name} {bound:g}" for name, bound in bounds.items()),
        f"{judged_on}: drop {gates.map_drop:g}, floor {gates.reference_floor:g}" + published,
        checkpoint.licence,
    ]


def _label_space(labels: tuple[str, ...]) -> str:
    """The name of the set, or the labels themselves."""
    names = [name for name, labels_of in LABEL_SETS.items() if labels_of == labels]
    return names[0] if names else f"{len(labels)} of its own: {', '.join(labels)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown, where a bar ends a cell."""
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )
