"""One `X-Request-ID` on every answer.

The ingress sets the header, and Serve's own middleware then appends the id the client sent, even
one that was refused. Serve lets a project put middlewares around its own
(`RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`, see settings.py); this one keeps the first.
"""

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = b"x-request-id"


class OneRequestId:
    """ASGI middleware: drops every `X-Request-ID` of a response but the first.

    It also makes UTF-8 of a request's headers, which are bytes to HTTP: Serve decodes some of them,
    the id too, and would answer others with a 500 in plain text, before the ingress is asked.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_once(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                ids = [header for header in headers if header[0].lower() == REQUEST_ID]
                others = [header for header in headers if header[0].lower() != REQUEST_ID]
                message["headers"] = others + ids[:1]
            await send(message)

        if "headers" in scope:
            scope["headers"] = [
                (name, value if value.isascii() else value.decode("latin-1").encode())
                for name, value in scope["headers"]
            ]
        await self._app(scope, receive, send_once)


def middlewares() -> list[Middleware]:
    """What Serve's callback returns."""
    return [Middleware(OneRequestId)]
