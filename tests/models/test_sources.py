"""Fetching published files, against a real HTTP server, a real pip and the real huggingface_hub."""

import functools
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import venv
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import filelock
import pytest
from pydantic import TypeAdapter, ValidationError

from models import sources
from models.errors import SourceError, SourceMismatch
from models.sources import HuggingFaceSource, LocalSource, PyPISource, Source, URLSource, fetch

ROOT = Path(__file__).resolve().parents[2]
BODY = bytes(range(256)) * 4000  # 1 MB
SHA = hashlib.sha256(BODY).hexdigest()
WRONG = hashlib.sha256(b"something else").hexdigest()
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MEMBER = "toydet/models/model.onnx"


class Publisher(ThreadingHTTPServer):
    """Serves /model.onnx and a Hugging Face repository; misbehaves below /held, /short, ..."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: Counter[str] = Counter()  # "METHOD /path" -> how often
        self.asked = threading.Event()  # a held request has its first half
        self.release = threading.Event()  # let it have the rest
        self.gone = threading.Event()  # the client of /hung has closed the connection

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
        if name != "model.onnx":
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


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as server:
        yield server


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of the checkpoint `toy` belong."""
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "home" / "checkpoints" / "toy"


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip's own settings name as the only index, with the wheel toydet 1.0 in it."""
    place = tmp_path / "index"
    place.mkdir()
    with zipfile.ZipFile(place / "toydet-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("toydet/__init__.py", "raise RuntimeError('this package was imported')")
        wheel.writestr(MEMBER, BODY)
        about = "toydet-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: toydet\nVersion: 1.0\n")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{about}/WHEEL", tags)
        wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    return place


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def get(said: list[str]) -> Callable[[Source], dict[str, Path]]:
    """Fetches a source as the checkpoint `toy`; what is logged is in `said`."""
    return functools.partial(fetch, checkpoint="toy", licence="Toy-1.0", log=said.append)


Get = Callable[[Source], dict[str, Path]]


@pytest.fixture
def start(publisher: Publisher) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a process that fetches a source as `toy` and prints its log (on an error: exit 3)."""
    script = (
        "import sys\n"
        "from pydantic import TypeAdapter\n"
        "from models.errors import SourceError\n"
        "from models.sources import Source, fetch\n"
        "source = TypeAdapter(Source).validate_json(sys.argv[1])\n"
        "try:\n"
        "    fetch(source, 'toy', 'Toy-1.0', log=lambda line: print(line, flush=True))\n"
        "except SourceError as error:\n"
        "    print(type(error).__name__, error)\n"
        "    sys.exit(3)\n"
    )
    running: list[subprocess.Popen[str]] = []

    def begin(source: Source, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, source.model_dump_json()],
            cwd=ROOT,
            env=os.environ | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        return process

    yield begin
    publisher.release.set()
    for process in running:
        process.kill()
        process.communicate()


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


# --- what a source may say


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"type": "ftp"}, "does not match any of the expected tags"),
        ({"type": "url", "url": "https://x/m.onnx", "sha256": SHA, "size": 3}, "size"),
        ({"type": "url", "url": "https://x/m.onnx", "sha256": SHA.upper()}, "sha256"),
        ({"type": "url", "url": "https://x/m.onnx", "sha256": SHA[1:]}, "sha256"),
        ({"type": "url", "url": "file:///etc/m.onnx", "sha256": SHA}, "must be an http"),
        ({"type": "url", "url": "https://x/", "sha256": SHA}, "must be a relative path"),
        ({"type": "url", "url": "https://x/%2e%2e", "sha256": SHA}, "must be a relative path"),
        ({"type": "url", "url": "https://x/\u00fc.onnx", "sha256": SHA}, "in ASCII"),
        (
            {"type": "huggingface", "repo": "a/b", "revision": "main", "files": {"m": SHA}},
            "revision",
        ),
        ({"type": "huggingface", "repo": "a/b", "revision": COMMIT, "files": {}}, "files"),
        (
            {"type": "huggingface", "repo": "a/b", "revision": COMMIT, "files": {"../m": SHA}},
            "files",
        ),
        ({"type": "huggingface", "repo": "a/b", "revision": COMMIT, "files": {"/m": SHA}}, "files"),
        (
            {"type": "pypi", "package": "-r", "version": "1", "member": "m", "sha256": SHA},
            "package",
        ),
        (
            {"type": "pypi", "package": "a", "version": "1 b", "member": "m", "sha256": SHA},
            "version",
        ),
        (
            {"type": "pypi", "package": "a", "version": "1", "member": "m/..", "sha256": SHA},
            "member",
        ),
    ],
)
def test_a_source_that_is_not_one_pinned_published_file_is_refused(
    fields: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValidationError, match=complaint):
        TypeAdapter(Source).validate_python(fields)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"type": "pypi", "package": "a", "version": "1", "member": "a/b/m.onnx"}, ["m.onnx"]),
        ({"type": "url", "url": "https://x/a/m%201.onnx?download=true"}, ["m 1.onnx"]),
        ({"type": "url", "url": "https://x/..%2f..%2fm.onnx"}, ["m.onnx"]),
        ({"type": "local", "path": "checkpoints/m.onnx"}, ["m.onnx"]),
    ],
)
def test_a_single_file_is_called_by_the_last_part_of_its_path(
    fields: dict[str, str], names: list[str]
) -> None:
    source = TypeAdapter(Source).validate_python(fields | {"sha256": SHA})
    assert source.files == dict.fromkeys(names, SHA)


# --- URL


@pytest.mark.parametrize("place", ["", "/unsized"])
def test_a_url_is_fetched_once_with_its_licence_and_progress_shown(
    place: str, publisher: Publisher, get: Get, folder: Path, said: list[str]
) -> None:
    source = URLSource(url=f"{publisher.url}{place}/model.onnx", sha256=SHA)
    assert get(source) == {"model.onnx": folder / "model.onnx"}
    assert (folder / "model.onnx").read_bytes() == BODY
    assert said[0] == f"fetching model.onnx of toy from {source.url}"
    assert said[1] == "licence: Toy-1.0"
    assert said[-1] == f"verified sha256 {SHA}: {folder / 'model.onnx'}"
    assert place == "/unsized" or 8 <= sum(" of 1.0 MB (" in line for line in said) <= 10
    assert leftovers(folder) == []

    said.clear()
    assert get(source) == {"model.onnx": folder / "model.onnx"}
    assert publisher.requests.total() == 1
    assert said == []


@pytest.mark.parametrize(
    ("path", "sha256", "error", "complaint"),
    [
        ("/absent", SHA, SourceError, "HTTP Error 404: Not Found"),
        ("/short/model.onnx", SHA, SourceError, "closed after 512000 of 1024000 bytes"),
        ("/model.onnx", WRONG, SourceMismatch, f"has sha256 {SHA}, not the pinned {WRONG}"),
        ("/hung/model.onnx", SHA, SourceError, "timed out"),
    ],
)
def test_a_url_that_does_not_give_the_pinned_file_leaves_nothing_behind(
    path: str,
    sha256: str,
    error: type[SourceError],
    complaint: str,
    publisher: Publisher,
    get: Get,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "SOCKET_TIMEOUT_S", 0.5)
    with pytest.raises(SourceError, match=complaint) as caught:
        get(URLSource(url=publisher.url + path, sha256=sha256))
    assert type(caught.value) is error
    assert list(folder.iterdir()) == leftovers(folder) == []


def test_a_file_in_the_cache_with_a_wrong_digest_is_replaced_and_the_log_says_so(
    publisher: Publisher, get: Get, folder: Path, said: list[str]
) -> None:
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"something else")
    paths = get(URLSource(url=f"{publisher.url}/model.onnx", sha256=SHA))
    assert paths["model.onnx"].read_bytes() == BODY
    assert said[0].startswith(f"replacing {folder / 'model.onnx'}: its sha256 is {WRONG}")


def test_files_in_the_cache_serve_while_another_process_holds_the_lock(
    get: Get, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(BODY)
    with filelock.FileLock(folder.parent / ".toy.lock"):
        assert get(URLSource(url="http://127.0.0.1:9/model.onnx", sha256=SHA))


def test_what_a_killed_run_left_is_dropped_before_anything_arrives(
    publisher: Publisher, folder: Path
) -> None:
    left = folder.parent / ".toy.part" / "killed" / "model.onnx"
    left.parent.mkdir(parents=True)
    left.write_bytes(BODY[:100])
    there: list[bool] = []
    source = URLSource(url=f"{publisher.url}/model.onnx", sha256=SHA)
    fetch(source, "toy", "Toy-1.0", log=lambda _: there.append(left.exists()))
    assert not any(there)
    assert leftovers(folder) == []


def test_two_processes_at_once_fetch_once(
    publisher: Publisher, start: Callable[..., subprocess.Popen[str]], folder: Path
) -> None:
    source = URLSource(url=f"{publisher.url}/held/model.onnx", sha256=SHA)
    first = start(source)
    assert publisher.asked.wait(20)
    second = start(source)
    assert second.stdout is not None
    assert second.stdout.readline() == "another process is fetching toy: waiting for it\n"
    publisher.release.set()
    assert "verified sha256" in first.communicate(timeout=20)[0]
    assert second.communicate(timeout=20)[0] == ""
    assert first.returncode == second.returncode == 0
    assert publisher.requests == {"GET /held/model.onnx": 1}
    assert leftovers(folder) == []


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_after_a_fetch_stopped_in_the_middle_the_next_one_succeeds(
    blow: signal.Signals,
    publisher: Publisher,
    start: Callable[..., subprocess.Popen[str]],
    get: Get,
    folder: Path,
) -> None:
    source = URLSource(url=f"{publisher.url}/held/model.onnx", sha256=SHA)
    process = start(source)
    assert publisher.asked.wait(20)
    process.send_signal(blow)
    process.communicate(timeout=20)
    assert process.returncode == -blow
    assert list(folder.iterdir()) == []
    assert leftovers(folder) == ([".toy.part"] if blow == signal.SIGKILL else [])

    publisher.release.set()
    assert get(source)["model.onnx"].read_bytes() == BODY
    assert leftovers(folder) == []


# --- PyPI


def test_a_member_of_a_wheel_is_fetched_through_pips_own_settings(
    get: Get, folder: Path, said: list[str], index: Path
) -> None:
    half = folder.parent / ".toy.part" / "killed" / "wheels" / "toydet-1.0-py3-none-any.whl"
    half.parent.mkdir(parents=True)  # of a run that was killed
    half.write_bytes((index / half.name).read_bytes()[:100])
    assert get(pypi()) == {"model.onnx": folder / "model.onnx"}
    assert (folder / "model.onnx").read_bytes() == BODY
    assert f"pip: Looking in links: {index}" in said
    assert "licence: Toy-1.0" in said
    assert leftovers(folder) == []
    assert "toydet" not in sys.modules


@pytest.mark.parametrize(
    ("changes", "error", "complaint"),
    [
        ({"version": "2.0"}, SourceError, "No matching distribution found for toydet==2.0"),
        ({"member": "toydet/m.onnx"}, SourceError, r"1.0-py3-none-any.whl has no member toydet/m"),
        ({"sha256": WRONG}, SourceMismatch, f"has sha256 {SHA}, not the pinned {WRONG}"),
    ],
)
def test_a_wheel_that_does_not_give_the_pinned_file_leaves_nothing_behind(
    changes: dict[str, str], error: type[SourceError], complaint: str, get: Get, folder: Path
) -> None:
    with pytest.raises(SourceError, match=complaint) as caught:
        get(pypi(**changes))
    assert type(caught.value) is error
    assert list(folder.iterdir()) == leftovers(folder) == []


def test_a_damaged_wheel_is_an_error_that_names_it(get: Get, index: Path) -> None:
    wheel = index / "toydet-1.0-py3-none-any.whl"
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    wheel.write_bytes(content)
    with pytest.raises(SourceError, match=r"toydet-1.0-py3-none-any.whl is damaged: Bad CRC-32"):
        get(pypi())


def test_an_interpreter_without_pip_is_named_with_the_remedy(
    get: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(SourceError, match=r"bare/bin/python has no pip.*`uv pip install pip`"):
        get(pypi())


def test_pip_is_stopped_with_the_fetch_it_serves(
    publisher: Publisher, start: Callable[..., subprocess.Popen[str]], folder: Path
) -> None:
    process = start(
        pypi(), PIP_NO_INDEX="0", PIP_INDEX_URL=f"{publisher.url}/hung", PIP_FIND_LINKS=""
    )
    assert publisher.asked.wait(20)
    process.send_signal(signal.SIGINT)  # to the parent alone, as from a supervisor
    process.communicate(timeout=20)
    assert publisher.gone.wait(20)
    assert leftovers(folder) == []


@pytest.mark.parametrize("name", ["toydet-1.0-py3-none-any.whl", "ToyDet-1.0-1-py3-none-any.whl"])
def test_the_wheel_itself_may_be_put_into_the_folder(
    name: str, get: Get, folder: Path, said: list[str], index: Path
) -> None:
    folder.mkdir(parents=True)
    (index / "toydet-1.0-py3-none-any.whl").rename(folder / name)
    assert get(pypi())["model.onnx"].read_bytes() == BODY
    assert not any(line.startswith("pip:") for line in said)


def test_an_unfit_wheel_in_the_folder_is_passed_over(
    get: Get, folder: Path, said: list[str]
) -> None:
    folder.mkdir(parents=True)
    (folder / "toydet-1.0-py3-none-any.whl").write_bytes(b"half copied")
    (folder / "toydet-0.9-py3-none-any.whl").write_bytes(b"not asked for")
    assert get(pypi())["model.onnx"].read_bytes() == BODY
    passed = [line for line in said if line.startswith("passing over")]
    assert len(passed) == 1
    assert "toydet-1.0-py3-none-any.whl is damaged" in passed[0]


def test_pip_is_followed_by_a_heartbeat(
    get: Get, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PROGRESS_EVERY_S", 0.01)
    get(pypi())
    assert any(line.endswith(" MB so far") for line in said)


# --- Hugging Face (HF_ENDPOINT is read when huggingface_hub is imported: hence the processes)


@pytest.mark.parametrize(
    ("files", "env", "code", "words"),
    [
        ({"model.onnx": SHA}, {}, 0, ["licence: Toy-1.0", f"verified sha256 {SHA}"]),
        ({"onnx/model.onnx": SHA, "model.onnx": SHA}, {}, 0, ["toy/onnx/model.onnx"]),
        ({"model.onnx": WRONG}, {}, 3, ["SourceMismatch cannot fetch", SHA, WRONG]),
        ({"absent.onnx": SHA}, {}, 3, ["SourceError cannot fetch", "huggingface_hub: 404"]),
        ({"model.onnx": SHA}, {"HF_HUB_OFFLINE": "1"}, 3, ["SourceError cannot fetch"]),
    ],
)
def test_a_hugging_face_file_is_fetched_at_its_commit(
    files: dict[str, str],
    env: dict[str, str],
    code: int,
    words: list[str],
    publisher: Publisher,
    start: Callable[..., subprocess.Popen[str]],
    get: Get,
    folder: Path,
) -> None:
    source = HuggingFaceSource(repo="toys/toy", revision=COMMIT, files=files)
    process = start(source, HF_ENDPOINT=publisher.url, HF_HUB_DISABLE_XET="1", **env)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == code, output
    assert [word for word in words if word not in output] == []
    assert leftovers(folder) == []
    if code == 0:
        # huggingface_hub asks for other things too, such as GET /api/agent-harnesses
        fetched = {key: count for key, count in publisher.requests.items() if "GET /toys" in key}
        assert fetched == {f"GET /toys/toy/resolve/{COMMIT}/{name}": 1 for name in files}
        before = publisher.requests.total()
        assert get(source) == {name: folder / name for name in files}
        assert publisher.requests.total() == before
    else:
        assert list(folder.iterdir()) == []


UNPINNED = HuggingFaceSource(repo="toys/toy", revision=COMMIT, files={"model.onnx": None})


def test_a_file_without_a_digest_is_recorded_at_the_first_fetch_and_pinned_ever_after(
    publisher: Publisher,
    start: Callable[..., subprocess.Popen[str]],
    get: Get,
    folder: Path,
) -> None:
    env = {"HF_ENDPOINT": publisher.url, "HF_HUB_DISABLE_XET": "1"}
    process = start(UNPINNED, **env)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0, output
    assert f"recorded sha256 {SHA}: {folder / 'model.onnx'}" in output
    assert (folder / "SHA256SUMS").read_text() == f"{SHA}  model.onnx\n"
    assert sources.digests(UNPINNED, "toy") == {"model.onnx": SHA}
    assert leftovers(folder) == []
    before = publisher.requests.total()
    assert get(UNPINNED) == {"model.onnx": folder / "model.onnx"}
    assert publisher.requests.total() == before

    (folder / "model.onnx").write_bytes(b"changed since")
    process = start(UNPINNED, **env)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0, output
    assert "not the pinned one" in output
    assert f"verified sha256 {SHA}" in output
    assert (folder / "model.onnx").read_bytes() == BODY


def test_a_fetch_that_gives_another_file_than_was_recorded_is_refused(
    publisher: Publisher, start: Callable[..., subprocess.Popen[str]], folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "SHA256SUMS").write_text(f"{WRONG}  model.onnx\n")
    process = start(UNPINNED, HF_ENDPOINT=publisher.url, HF_HUB_DISABLE_XET="1")
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 3, output
    assert "SourceMismatch cannot fetch" in output
    assert not (folder / "model.onnx").exists()


def test_a_file_without_a_digest_may_be_put_there_by_hand_and_is_recorded(
    get: Get, folder: Path, said: list[str]
) -> None:
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(BODY)
    assert get(UNPINNED) == {"model.onnx": folder / "model.onnx"}
    assert said == [f"recorded sha256 {SHA} of {folder / 'model.onnx'}, put there"]
    assert (folder / "SHA256SUMS").read_text() == f"{SHA}  model.onnx\n"
    assert leftovers(folder) == []
    said.clear()
    get(UNPINNED)
    assert said == []


def test_without_network_a_file_without_a_digest_is_asked_for_too(
    get: Get, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as if not installed
    with pytest.raises(SourceError, match="sha256 not known yet: recorded then"):
        get(UNPINNED)
    with pytest.raises(SourceError, match=r"^toy: no sha256 is known of model\.onnx$"):
        sources.digests(UNPINNED, "toy")


def test_a_damaged_record_is_named(get: Get, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "SHA256SUMS").write_text("model.onnx\n")
    with pytest.raises(SourceError, match=r"SHA256SUMS has a line that is not a sha256 and a name"):
        get(UNPINNED)


# --- local


def test_a_local_file_is_used_in_place(
    get: Get, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETSERVE_DATA", str(tmp_path))
    (tmp_path / "model.onnx").write_bytes(BODY)
    for path in ("model.onnx", str(tmp_path / "model.onnx")):
        assert get(LocalSource(path=path, sha256=SHA)) == {"model.onnx": tmp_path / "model.onnx"}
    assert not folder.exists()


def test_an_absent_local_file_names_detserve_data(
    get: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETSERVE_DATA", str(tmp_path))
    with pytest.raises(SourceError, match=f"{tmp_path}/model.onnx .*{SHA}.* under DETSERVE_DATA"):
        get(LocalSource(path="model.onnx", sha256=SHA))


def test_a_local_file_with_a_wrong_digest_is_kept_and_named_with_both_digests(
    get: Get, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(BODY)
    with pytest.raises(
        SourceMismatch, match=f"model.onnx has sha256 {SHA}, not the pinned {WRONG}"
    ):
        get(LocalSource(path=str(tmp_path / "model.onnx"), sha256=WRONG))
    assert (tmp_path / "model.onnx").read_bytes() == BODY


# --- without network


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        (pypi(version="7"), f"{MEMBER} in the wheel toydet-7-*.whl (pip: toydet==7)"),
        (
            URLSource(url=f"http://127.0.0.1:{free_port()}/a/model.onnx", sha256=SHA),
            "/a/model.onnx",
        ),
        (
            HuggingFaceSource(
                repo="toys/toy", revision=COMMIT, files={"onnx/model.onnx": SHA, "model.onnx": SHA}
            ),
            f"onnx/model.onnx of toys/toy@{COMMIT}",
        ),
    ],
    ids=lambda value: value.type if not isinstance(value, str) else "",
)
def test_without_network_the_message_says_what_to_put_where_and_that_then_serves(
    source: Source, origin: str, get: Get, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as if not installed
    with pytest.raises(SourceError) as caught:
        get(source)
    message = str(caught.value)
    assert origin in message
    assert source.type != "huggingface" or 'pip install "detserve[export]"' in message
    lines = [line.strip() for line in message.splitlines()]
    targets = [Path(line) for line in lines if line.startswith(str(folder))]
    assert targets == [folder / name for name in source.files]
    assert lines.count(f"sha256 {SHA}") == len(targets)

    for target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"something else")
    with pytest.raises(SourceError, match=f"the file there now has {WRONG}"):
        get(source)

    for target in targets:
        target.write_bytes(BODY)
    assert get(source) == {name: folder / name for name in source.files}


def test_a_cache_that_cannot_be_written_is_one_sentence(
    publisher: Publisher, get: Get, tmp_path: Path
) -> None:
    (tmp_path / "home").write_text("a file where the folder belongs")
    with pytest.raises(SourceError, match="cannot keep the files of toy"):
        get(URLSource(url=f"{publisher.url}/model.onnx", sha256=SHA))


def test_a_source_read_back_from_json_is_the_same() -> None:
    for source in (pypi(), HuggingFaceSource(repo="a/b", revision=COMMIT, files={"m": SHA})):
        assert TypeAdapter(Source).validate_python(json.loads(source.model_dump_json())) == source
