"""Precision over recall, from pycocotools' own accumulation: the curves whose areas are the AP."""

from collections.abc import Sequence

import numpy as np

from qualification.evidence import Seen
from qualification.html.truth import Truth
from qualification.mean_ap import evaluation

IOUS = (0.5, 0.75)
ALL_AREAS, MOST_DETECTIONS = 0, -1  # places in pycocotools' `precision` [T, R, K, A, M]


def precision_recall(truth: Truth, seen: Sequence[Seen]) -> list[np.ndarray]:
    """For each of `IOUS`: precision float64 [101] at recall 0, 0.01 to 1, the mean over the
    classes that the ground truth has. Its mean is the AP at that IoU."""
    evaluated = evaluation(truth.dataset, seen, truth.labels)
    if evaluated is None:
        return [np.zeros(101) for _ in IOUS]
    curves = []
    for iou in IOUS:
        place = int(np.argmin(np.abs(evaluated.params.iouThrs - iou)))
        precision = evaluated.eval["precision"][place, :, :, ALL_AREAS, MOST_DETECTIONS]
        present = precision.max(axis=0) > -1  # -1: the ground truth has none of that class
        curves.append(precision[:, present].mean(axis=1))
    return curves
