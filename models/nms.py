"""Class-aware greedy non-maximum suppression, shared by the families whose heads need it."""

from collections.abc import Mapping

import numpy as np

from models.detections import Detections
from models.placement import Placement


def suppress(
    boxes: np.ndarray,
    scores: np.ndarray,
    class_ids: np.ndarray,
    *,
    iou: float,
    limit: int,
) -> np.ndarray:
    """Indices of the boxes to keep, by falling score (equal scores keep their order).

    A box is dropped when it overlaps a kept box of its own class by an IoU above `iou`; the best
    `limit` boxes over all classes are kept.

    boxes: float32 [N, 4] xyxy; scores: float32 [N]; class_ids: int [N]. Returns int64 [K].
    """
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    order = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    while len(order) and len(kept) < limit:
        best, order = order[0], order[1:]
        kept.append(int(best))
        width = np.minimum(right[best], right[order]) - np.maximum(left[best], left[order])
        height = np.minimum(bottom[best], bottom[order]) - np.maximum(top[best], top[order])
        intersection = np.maximum(width, 0) * np.maximum(height, 0)
        union = areas[best] + areas[order] - intersection
        # a quotient: `iou` times the union rounds, and drops some overlaps of exactly `iou`
        overlaps = intersection / np.maximum(union, np.finfo(np.float32).tiny) > iou
        order = order[~(overlaps & (class_ids[order] == class_ids[best]))]
    return np.array(kept, np.int64)


def detections_of(
    outputs: Mapping[str, np.ndarray],
    chosen: np.ndarray,
    placed: Placement,
    *,
    iou: float,
    limit: int,
) -> Detections:
    """One canvas's anchors (models/graph.py) as detections on its source image.

    chosen: bool [A], the anchors that pass the family's score threshold.
    """
    boxes, scores, class_ids = (
        outputs[name][0][chosen] for name in ("boxes", "scores", "class_ids")
    )
    kept = suppress(boxes, scores, class_ids, iou=iou, limit=limit)
    return Detections(
        boxes=placed.to_source(boxes[kept]),
        scores=scores[kept],
        class_ids=class_ids[kept],
        height=placed.source_height,
        width=placed.source_width,
    )
