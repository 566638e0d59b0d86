"""The reference of a published ONNX file of YOLOv8 or 11: that file run by OpenCV alone.

Shares nothing with the served path but the published ONNX file: OpenCV decodes the image, resizes
and pads it (Ultralytics' own preprocessing is these OpenCV calls), runs the network in its DNN
module, and suppresses with its own NMS.
"""

from pathlib import Path

import cv2
import numpy as np
import onnx

from models.detections import Detections
from models.opencv import read_bgr, suppressed
from models.ultralytics.onnx_form import published_labels


class OpenCVReference:
    """Runs an ONNX file in Ultralytics' export form (onnx_form.py)."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(path)
        self.labels = published_labels(model)
        shape = model.graph.input[0].type.tensor_type.shape
        self._height, self._width = (dim.dim_value for dim in shape.dim[2:])
        self._network = cv2.dnn.readNetFromONNX(str(path))

    def __call__(self, image: bytes, threshold: float) -> Detections:
        pixels = read_bgr(image)
        height, width = pixels.shape[:2]
        gain = min(self._height / height, self._width / width)
        inner_width, inner_height = round(width * gain), round(height * gain)
        pad_x = (self._width - inner_width) / 2
        pad_y = (self._height - inner_height) / 2
        if (width, height) != (inner_width, inner_height):
            pixels = cv2.resize(pixels, (inner_width, inner_height))
        # Ultralytics' LetterBox: the -0.1 and +0.1 send an odd pixel to the right and bottom
        pixels = cv2.copyMakeBorder(
            pixels,
            round(pad_y - 0.1),
            round(pad_y + 0.1),
            round(pad_x - 0.1),
            round(pad_x + 0.1),
            cv2.BORDER_CONSTANT,
            value=(114, 114, 114),
        )
        self._network.setInput(cv2.dnn.blobFromImage(pixels, 1 / 255, swapRB=True))
        rows = np.asarray(self._network.forward())[0].T  # [A, 4 + C]
        rows = rows[rows[:, 4:].max(axis=1) >= threshold]
        scores, class_ids = rows[:, 4:].max(axis=1), rows[:, 4:].argmax(axis=1)
        xywh = rows[:, :4].astype(np.float64)
        xywh[:, :2] -= xywh[:, 2:] / 2
        return suppressed(
            xywh,
            scores,
            class_ids,
            iou=0.7,
            limit=300,
            offset=(round(pad_x - 0.1), round(pad_y - 0.1)),
            scale=(inner_width / width, inner_height / height),
            source=(height, width),
        )
