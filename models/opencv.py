"""OpenCV's own pieces for references: decode, suppress. No part of the served path uses them.

They need nothing beyond OpenCV, whose NMS and image decoding are other code than ours.
"""

import cv2
import numpy as np

from models.detections import Detections
from models.errors import DamagedImage


def read_bgr(image: bytes) -> np.ndarray:
    """An encoded image as uint8 [H, W, 3] BGR, upright (OpenCV applies EXIF orientation).

    Raises:
        DamagedImage: OpenCV cannot decode it.
    """
    content = np.frombuffer(image, np.uint8)
    pixels = cv2.imdecode(content, cv2.IMREAD_COLOR) if image else None  # it asserts on none
    if pixels is None:
        raise DamagedImage("OpenCV cannot decode the image")
    return pixels


def suppressed(
    xywh: np.ndarray,
    scores: np.ndarray,
    class_ids: np.ndarray,
    *,
    iou: float,
    limit: int,
    offset: tuple[int, int],
    scale: tuple[float, float],
    source: tuple[int, int],
) -> Detections:
    """Candidates after OpenCV's class-aware NMS, as detections on the source image.

    xywh: float64 [N, 4] left, top, width, height in canvas pixels; offset: the canvas's pad
    (x, y); scale: canvas pixels a source pixel (x, y); source: (height, width).
    """
    height, width = source
    kept = np.array(
        cv2.dnn.NMSBoxesBatched(xywh.tolist(), scores.tolist(), class_ids.tolist(), 0.0, iou), int
    )
    kept = kept[np.argsort(-scores[kept], kind="stable")][:limit]
    corners = np.hstack([xywh[kept, :2], xywh[kept, :2] + xywh[kept, 2:]])
    corners = np.clip((corners - [*offset, *offset]) / [*scale, *scale], 0, [width, height] * 2)
    return Detections(
        corners.astype(np.float32),
        scores[kept].astype(np.float32),
        class_ids[kept].astype(np.int32),
        height,
        width,
    )
