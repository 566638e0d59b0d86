"""Native results of a served model, for several test modules."""

import asyncio
import threading
from typing import Any

from ray import serve

from qualification.evidence import Seen


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
