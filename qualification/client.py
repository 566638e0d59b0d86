"""A plain HTTP client of the wire, for the stage that compares HTTP with native results."""

import base64
from collections.abc import Sequence

import httpx
import orjson

TIMEOUT_S = 120


def data_url(image: bytes) -> str:
    """An encoded JPEG or PNG as a data: URL."""
    kind = "png" if image.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


class Client:
    """Keeps one connection to the server at `url` (scheme, host and port)."""

    def __init__(self, url: str) -> None:
        # trust_env off: a proxy of the environment must not stand between us and the server
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)

    def infer(
        self, model: str | None, images: Sequence[bytes], request_id: str | None = None
    ) -> tuple[int, bytes]:
        """(status, body) of one request; status 0 and the reason when there was no answer."""
        items = [{"type": "image_url", "url": data_url(image)} for image in images]
        body = {"input": items} if model is None else {"model": model, "input": items}
        headers = {"x-request-id": request_id} if request_id else None
        try:
            answer = self._http.post("/v1/infer", content=orjson.dumps(body), headers=headers)
        except httpx.HTTPError as error:
            return 0, repr(error).encode()
        return answer.status_code, answer.content

    def get(self, path: str) -> tuple[int, dict[str, object]]:
        """(status, document) of a JSON path.

        Raises:
            httpx.HTTPError: nothing answers there.
        """
        answer = self._http.get(path)
        return answer.status_code, orjson.loads(answer.content)

    def close(self) -> None:
        self._http.close()
