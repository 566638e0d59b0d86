"""Native results of a served model, and HTTP answers as detections, for several test modules."""

import asyncio
import threading
from typing import Any

import numpy as np
from ray import serve

from models.detections import Detections
from qualification.evidence import Seen, WireBox


class Native:
    """Served models through their Serve handles, without HTTP.

    Handles live on one event loop, Serve's fast settings ask for that.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, model: str, method: str, *arguments: Any) -> Any:
        async def on_loop() -> Any:
            handle = serve.get_deployment_handle("Detector", model)
            return await getattr(handle, method).remote(*arguments)

        return asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(timeout=120)

    def detect(self, model: str, image: str, encoded: bytes) -> Seen:
        result = self.call(model, "detect", encoded, 50_000_000)
        return Seen(image, result.detections, result.labels)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


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
