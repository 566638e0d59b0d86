"""A publisher on this machine: what it publishes, and the HTTP server that does."""

import hashlib
import json
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from models.sources import PyPISource, Source

Get = Callable[[Source], dict[str, Path]]  # the fixture `get`
Start = Callable[..., subprocess.Popen[str]]  # the fixture `start`

BODY = bytes(range(256)) * 4000  # 1 MB
SHA = hashlib.sha256(BODY).hexdigest()
WRONG = hashlib.sha256(b"something else").hexdigest()
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MEMBER = "toydet/models/model.onnx"
MAIN_OF_TOY = "/api/models/toys/toy/revision/main"


class Publisher(ThreadingHTTPServer):
    """Serves /model.onnx and a Hugging Face repository; misbehaves below /held, /short, ..."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.published = {"model.onnx"}  # the last parts of the paths it answers
        self.commit: str | None = COMMIT  # what the branch main points to
        self.requests: Counter[str] = Counter()  # "METHOD /path" -> how often
        self.asked = threading.Event()  # a held request has its first half
        self.release = threading.Event()  # let it have the rest
        self.gone = threading.Event()  # the client of /hung has closed the connection

    @property
    def as_hub(self) -> dict[str, str]:
        """Environment that makes huggingface_hub ask this server."""
        return {"HF_ENDPOINT": self.url, "HF_HUB_DISABLE_XET": "1"}

    def downloads(self) -> dict[str, int]:
        """How often which file of the Hugging Face repository was fetched: by "COMMIT/NAME".

        huggingface_hub asks for other things, too, such as GET /api/agent-harnesses.
        """
        start = "GET /toys/toy/resolve/"
        return {
            key.removeprefix(start): count
            for key, count in self.requests.items()
            if key.startswith(start)
        }

    def __enter__(self) -> "Publisher":
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self.shutdown()
        self.server_close()


class Answer(BaseHTTPRequestHandler):
    server: Publisher

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.requests[f"{self.command} {self.path}"] += 1
        place, _, name = self.path.rpartition("/")
        if self.path.startswith("/hung"):
            self.server.asked.set()
            self.rfile.read(1)  # returns when the client goes away
            self.server.gone.set()
            return
        if self.path.startswith(MAIN_OF_TOY):  # with or without a query
            about = json.dumps({"id": "toys/toy", "sha": self.server.commit}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(about)))
            self.end_headers()
            self.wfile.write(about)
            return
        if name not in self.server.published:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("ETag", '"etag-of-the-model"')
        self.send_header("X-Repo-Commit", COMMIT)
        if place != "/unsized":
            self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        if self.command == "HEAD":
            return
        half = len(BODY) // 2
        self.wfile.write(BODY[:half])
        if place == "/short":
            return
        if place == "/held":
            self.wfile.flush()
            self.server.asked.set()
            self.server.release.wait(20)
        try:
            self.wfile.write(BODY[half:])
        except ConnectionError:  # the client was killed
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Keep the tests' output clean."""


def pypi(**changes: str) -> PyPISource:
    fields = {"package": "toydet", "version": "1.0", "member": MEMBER, "sha256": SHA}
    return PyPISource(**fields | changes)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def leftovers(folder: Path) -> list[str]:
    """What lies beside the files: only the lock may."""
    return [path.name for path in folder.parent.glob(".*") if path.name != ".toy.lock"]
