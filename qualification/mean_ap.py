"""mAP by pycocotools, the published implementation of COCO's metric, and by the definition that
the reference system publishes its figures in."""

import contextlib
import copy
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from qualification.average_precision import matches
from qualification.datasets.coco import Dataset
from qualification.evidence import Seen


class MeanAP(BaseModel):
    """Averages over classes and recall, 0..1, by two definitions; the gates use COCO's."""

    map: float = Field(
        description="mAP@[.50:.95] of COCO: pycocotools' stats[0], all areas, 100 detections for "
        "each class and image; what the gates use"
    )
    map50: float = Field(description="mAP@.50, the same: stats[1]")
    reference_system_map: float = Field(
        description="mAP@[.50:.95] as the reference system defines it: the best 100 detections of "
        "an image over all classes, crowds left out, classes that the images have"
    )
    reference_system_map50: float = Field(description="mAP@.50, the same")
    scored_boxes: int = Field(description="boxes whose label is a category of the dataset")


def mean_ap(
    dataset: Dataset, seen: Sequence[Seen], labels: Mapping[str, str] | None = None
) -> MeanAP:
    """mAP of the detections on the dataset.

    labels: checkpoint label -> dataset category; boxes of other labels are left out. None: labels
    and categories of the same name belong together. No scored box at all is a mAP of 0.
    """
    evaluated = evaluation(dataset, seen, labels)
    if evaluated is None:
        return MeanAP(
            map=0, map50=0, reference_system_map=0, reference_system_map50=0, scored_boxes=0
        )
    with contextlib.redirect_stdout(io.StringIO()):
        evaluated.summarize()
    first, second = (float(np.maximum(value, 0)) for value in evaluated.stats[:2])
    ours = matches(dataset, seen, labels)
    return MeanAP(
        map=first,
        map50=second,
        reference_system_map=ours.map,
        reference_system_map50=ours.map50,
        scored_boxes=len(evaluated.cocoDt.anns),
    )


def evaluation(
    dataset: Dataset, seen: Sequence[Seen], labels: Mapping[str, str] | None = None
) -> Any:
    """pycocotools' accumulated `COCOeval` of what `mean_ap` takes; None without a scored box,
    because pycocotools cannot load an empty list."""
    from pycocotools.coco import COCO  # type: ignore[import-untyped]
    from pycocotools.cocoeval import COCOeval  # type: ignore[import-untyped]

    categories = {
        category["name"]: category["id"] for category in dataset.ground_truth["categories"]
    }
    ids = {image.name: image.id for image in dataset.images}
    rows = []
    for one in seen:
        for box, score, label in zip(
            one.detections.boxes.astype(float), one.detections.scores, one.labels, strict=True
        ):
            name = label if labels is None else labels.get(label)
            if name in categories:
                x_min, y_min, x_max, y_max = box.tolist()
                rows.append(
                    {
                        "image_id": ids[one.image],
                        "category_id": categories[name],
                        "bbox": [x_min, y_min, x_max - x_min, y_max - y_min],
                        "score": float(score),
                    }
                )
    if not rows:
        return None
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = copy.deepcopy(dataset.ground_truth)
        truth.createIndex()
        evaluated = COCOeval(truth, truth.loadRes(rows), "bbox")
        evaluated.evaluate()
        evaluated.accumulate()
    return evaluated
