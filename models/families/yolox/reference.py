"""YOLOX's reference: the published file run by OpenCV alone.

Shares nothing with the served path but the published ONNX file: OpenCV decodes and resizes the
image, runs the network in its DNN module, and suppresses with its own NMS; the grid is decoded
here, anchor by anchor from its index, in double precision.
"""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import onnx

from models.detections import Detections
from models.opencv import read_bgr, suppressed


class OpenCVReference:
    """Runs the published ONNX file of a YOLOX checkpoint."""

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        shape = onnx.load(path).graph.input[0].type.tensor_type.shape
        self.labels = list(labels)
        self._height, self._width = (dim.dim_value for dim in shape.dim[2:])
        self._network = cv2.dnn.readNetFromONNX(str(path))

    def __call__(self, image: bytes, threshold: float) -> Detections:
        pixels = read_bgr(image)
        height, width = pixels.shape[:2]
        ratio = min(self._height / height, self._width / width)
        inner = cv2.resize(pixels, (int(width * ratio), int(height * ratio)))
        padded = cv2.copyMakeBorder(
            inner,
            0,
            self._height - inner.shape[0],
            0,
            self._width - inner.shape[1],
            cv2.BORDER_CONSTANT,
            value=(114, 114, 114),
        )
        self._network.setInput(cv2.dnn.blobFromImage(padded))
        rows = np.asarray(self._network.forward()).reshape(-1, 5 + len(self.labels))
        class_scores = rows[:, 4:5] * rows[:, 5:]
        candidates = np.flatnonzero(class_scores.max(axis=1) > threshold)
        scores, class_ids = class_scores.max(axis=1), class_scores.argmax(axis=1)
        xywh = np.array([self._box(int(index), rows[index]) for index in candidates]).reshape(-1, 4)
        scores, class_ids = scores[candidates], class_ids[candidates]
        return suppressed(
            xywh,
            scores,
            class_ids,
            iou=0.65,
            limit=300,
            offset=(0, 0),
            scale=(ratio, ratio),
            source=(height, width),
        )

    def _box(self, index: int, row: np.ndarray) -> list[float]:
        """(left, top, width, height) in canvas pixels of the anchor at `index`."""
        for stride in (8, 16, 32):
            columns = self._width // stride
            cells = columns * (self._height // stride)
            if index < cells:
                break
            index -= cells
        width, height = (float(np.exp(float(value))) * stride for value in row[2:4])
        centre_x = (float(row[0]) + index % columns) * stride
        centre_y = (float(row[1]) + index // columns) * stride
        return [centre_x - width / 2, centre_y - height / 2, width, height]
