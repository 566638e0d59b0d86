"""Native results of a served model, and HTTP answers as detections, for several test modules."""

import asyncio

import numpy as np

from models.detections import Detections
from qualification.evidence import Seen, WireBox


class NativeModel:
    """A served model through its Serve handle, without HTTP."""

    def __init__(self, name: str) -> None:
        self._name = name

    def detect(self, image: str, encoded: bytes) -> Seen:
        async def call():
            from ray import serve

            handle = serve.get_deployment_handle("Detector", self._name)
            return await handle.detect.remote(encoded, 50_000_000)

        result = asyncio.run(call())
        return Seen(image, result.detections, result.labels)


def wire_to_seen(image: str, boxes: list[WireBox], height: int, width: int) -> Seen:
    """An HTTP answer as detections in pixels."""
    ordered = sorted(boxes, key=lambda box: -box[6])
    corners = np.array([box[2:6] for box in ordered], np.float32).reshape(-1, 4)
    size = np.array([width, height, width, height], np.float32)
    return Seen(
        image,
        Detections(
            corners * size,
            np.array([box[6] for box in ordered], np.float32),
            np.array([box[1] for box in ordered], np.int32),
            height,
            width,
        ),
        [box[0] for box in ordered],
    )
