"""Detections of the families whose queries are detections: a threshold and no suppression."""

from collections.abc import Mapping

import numpy as np

from models.detections import Detections
from models.placement import Placement


def detections_of(
    outputs: Mapping[str, np.ndarray], placed: Placement, threshold: float
) -> Detections:
    """One image's queries (models/graph.py) above the threshold, by falling score.

    The threshold itself is not enough, as in transformers' `post_process_object_detection`.
    """
    boxes, scores, class_ids = (outputs[name][0] for name in ("boxes", "scores", "class_ids"))
    chosen = np.flatnonzero(scores > np.float32(threshold))
    chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
    return Detections(
        boxes=placed.to_source(boxes[chosen]),
        scores=scores[chosen],
        class_ids=class_ids[chosen],
        height=placed.source_height,
        width=placed.source_width,
    )
