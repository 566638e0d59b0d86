"""What `fetch` keeps, verifies and waits for, and what it says without network."""

import signal
import sys
from pathlib import Path

import filelock
import pytest

from models.cache import digests, revision
from models.errors import SourceError, SourceMismatch
from models.fetch import fetch
from models.sources import HuggingFaceSource, LocalSource, Source, URLSource
from tests.models.publisher import (
    BODY,
    COMMIT,
    MEMBER,
    SHA,
    WRONG,
    Get,
    Publisher,
    Start,
    free_port,
    leftovers,
    pypi,
)


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


def test_two_processes_at_once_fetch_once(publisher: Publisher, start: Start, folder: Path) -> None:
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
    start: Start,
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


# --- local


LOCAL = {"config.json": WRONG, "model.onnx": SHA}


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `toy` under DETSERVE_DATA, with two files."""
    monkeypatch.setenv("DETSERVE_DATA", str(tmp_path))
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "config.json").write_bytes(b"something else")
    (tmp_path / "toy" / "model.onnx").write_bytes(BODY)
    return tmp_path / "toy"


def test_local_files_are_used_in_place(get: Get, local: Path, folder: Path) -> None:
    for place in ("toy", str(local)):
        source = LocalSource(folder=place, files=LOCAL)
        assert get(source) == {name: local / name for name in LOCAL}
        assert digests(source, "toy") == LOCAL
        assert revision(source, "toy") is None
    assert not folder.exists()


def test_an_absent_local_file_names_detserve_data(get: Get, local: Path) -> None:
    (local / "model.onnx").unlink()
    with pytest.raises(SourceError, match=f"{local}/model.onnx .*{SHA}.* under DETSERVE_DATA"):
        get(LocalSource(folder="toy", files=LOCAL))


def test_a_local_file_with_a_wrong_digest_is_kept_and_named_with_both_digests(
    get: Get, local: Path
) -> None:
    with pytest.raises(
        SourceMismatch, match=f"model.onnx has sha256 {SHA}, not the pinned {WRONG}"
    ):
        get(LocalSource(folder="toy", files=LOCAL | {"model.onnx": WRONG}))
    assert (local / "model.onnx").read_bytes() == BODY


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
