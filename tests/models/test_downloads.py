"""Downloads from a real HTTP server, through a real pip and the real huggingface_hub."""

import signal
import sys
import venv
from pathlib import Path

import pytest

from models import downloads
from models.errors import SourceError, SourceMismatch
from models.sources import HuggingFaceSource, URLSource
from tests.models.publisher import BODY, COMMIT, SHA, WRONG, Get, Publisher, Start, leftovers, pypi

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
    monkeypatch.setattr(downloads, "SOCKET_TIMEOUT_S", 0.5)
    with pytest.raises(SourceError, match=complaint) as caught:
        get(URLSource(url=publisher.url + path, sha256=sha256))
    assert type(caught.value) is error
    assert list(folder.iterdir()) == leftovers(folder) == []


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
    publisher: Publisher, start: Start, folder: Path
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
    monkeypatch.setattr(downloads, "PROGRESS_EVERY_S", 0.01)
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
    start: Start,
    get: Get,
    folder: Path,
) -> None:
    source = HuggingFaceSource(repo="toys/toy", revision=COMMIT, files=files)
    process = start(source, **publisher.as_hub, **env)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == code, output
    assert [word for word in words if word not in output] == []
    assert leftovers(folder) == []
    if code == 0:
        assert publisher.downloads() == {f"{COMMIT}/{name}": 1 for name in files}
        before = publisher.requests.total()
        assert get(source) == {name: folder / name for name in files}
        assert publisher.requests.total() == before
    else:
        assert list(folder.iterdir()) == []
