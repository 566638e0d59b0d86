"""Taking a checkpoint's files from a directory: as if fetched, all of them or none."""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest

from models.adopt import adopt
from models.cache import digests, revision
from models.errors import SourceError, SourceMismatch
from models.sources import HuggingFaceSource, LocalSource, Source, URLSource
from tests.models.publisher import BODY, COMMIT, SHA, WRONG, Get, Publisher, Start, leftovers, pypi

PINNED = HuggingFaceSource(
    repo="toys/toy", revision=COMMIT, files={"config.json": WRONG, "onnx/model.onnx": SHA}
)
UNPINNED = PINNED.model_copy(update={"files": dict.fromkeys(PINNED.files)})
MAIN = UNPINNED.model_copy(update={"revision": "main"})
URL = URLSource(url="http://127.0.0.1:9/model.onnx", sha256=SHA)

Take = Callable[[Source], None]


@pytest.fixture
def directory(tmp_path: Path, index: Path) -> Path:
    """A directory with the files of each of the sources above, and of others."""
    place = tmp_path / "published"
    (place / "onnx").mkdir(parents=True)
    (place / "onnx" / "model.onnx").write_bytes(BODY)
    (place / "model.onnx").write_bytes(BODY)
    (place / "config.json").write_bytes(b"something else")
    (place / "README.md").write_text("not part of it")
    return place


@pytest.fixture
def take(folder: Path, directory: Path, said: list[str]) -> Take:
    """Adopts a source as the checkpoint `toy` from the directory; what is logged is in `said`."""
    return functools.partial(adopt, checkpoint="toy", directory=directory, log=said.append)


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Which file lies where, by inode, and when its content was last changed."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize(
    ("source", "verb"),
    [
        pytest.param(PINNED, "verified", id="pinned"),
        pytest.param(UNPINNED, "recorded", id="unpinned"),
        pytest.param(MAIN, "recorded", id="main"),
        pytest.param(URL, "verified", id="url"),
        pytest.param(pypi(), "verified", id="member"),
    ],
)
def test_files_of_a_directory_are_as_if_fetched_and_taking_them_again_does_nothing(
    source: Source, verb: str, take: Take, get: Get, folder: Path, directory: Path, said: list[str]
) -> None:
    before = state(directory)
    take(source)
    for name in source.files:
        assert f"took {name} of toy from {directory / name}" in said
        assert f"{verb} sha256 {digests(source, 'toy')[name]}: {folder / name}" in said
        assert (folder / name).read_bytes() == (directory / name).read_bytes()
    recorded = (folder / "SHA256SUMS").is_file()
    assert recorded == (verb == "recorded")
    assert leftovers(folder) == []
    assert state(directory) == before

    said.clear()
    taken = state(folder)
    assert get(source) == {name: folder / name for name in source.files}  # there is no network
    take(source)
    assert said == []
    assert state(folder) == taken
    assert leftovers(folder) == []


def test_a_file_may_be_taken_out_of_its_wheel(
    take: Take, get: Get, folder: Path, directory: Path, index: Path, said: list[str]
) -> None:
    wheel = directory / "toydet-1.0-py3-none-any.whl"
    (directory / "model.onnx").unlink()
    (index / wheel.name).rename(wheel)
    take(pypi())
    assert (folder / "model.onnx").read_bytes() == BODY
    assert said[0] == f"took model.onnx of toy from {wheel}"
    assert list(folder.iterdir()) == [folder / "model.onnx"]


@pytest.mark.parametrize(
    ("member", "complaint"),
    [
        ("toydet/absent.onnx", r"toydet-1.0-py3-none-any.whl has no member toydet/absent.onnx"),
        ("toydet/__init__.py", rf"toydet/__init__.py in .*toydet-1.0-.*, not the pinned {SHA}"),
    ],
)
def test_a_wheel_without_the_pinned_member_is_refused(
    member: str, complaint: str, take: Take, folder: Path, directory: Path, index: Path
) -> None:
    shutil.copy(index / "toydet-1.0-py3-none-any.whl", directory)
    with pytest.raises(SourceError, match=complaint):
        take(pypi(member=member))
    assert list(folder.iterdir()) == leftovers(folder) == []


def test_what_is_a_symbolic_link_in_the_directory_is_a_file_of_its_own_in_the_cache(
    take: Take, folder: Path, directory: Path
) -> None:
    blob = directory / "blob"  # as in huggingface_hub's own cache
    (directory / "model.onnx").rename(blob)
    (directory / "model.onnx").symlink_to("blob")
    take(URL)
    blob.write_bytes(b"changed since")
    assert not (folder / "model.onnx").is_symlink()
    assert (folder / "model.onnx").read_bytes() == BODY


def test_a_file_that_is_not_the_pinned_one_is_named_and_none_is_taken(
    take: Take, folder: Path, directory: Path
) -> None:
    (directory / "onnx" / "model.onnx").write_bytes(b"something else")
    sentence = f"{directory}/onnx/model.onnx has sha256 {WRONG}, not the pinned {SHA}"
    with pytest.raises(SourceMismatch, match=sentence):
        take(PINNED)
    assert list(folder.iterdir()) == leftovers(folder) == []


def test_a_file_that_is_not_the_recorded_one_is_refused_until_started_anew(
    take: Take, folder: Path, directory: Path
) -> None:
    take(UNPINNED)
    taken = state(folder)
    (directory / "config.json").write_bytes(BODY)
    with pytest.raises(SourceMismatch, match=rf"config.json has sha256 {SHA}, not {WRONG}") as said:
        take(UNPINNED)
    bundles = folder.parents[1] / "bundles" / "toy"
    sentence = f"to start anew, delete {folder} and what was built from it, {bundles}"
    assert str(said.value).endswith(sentence)
    assert state(folder) == taken

    shutil.rmtree(folder)
    take(UNPINNED)
    assert digests(UNPINNED, "toy") == dict.fromkeys(UNPINNED.files, SHA)


@pytest.mark.parametrize(
    ("source", "absent", "sentence"),
    [
        pytest.param(
            UNPINNED,
            "config.json",
            "missing config.json; expected config.json, onnx/model.onnx; "
            "found README.md, model.onnx, onnx",
            id="one",
        ),
        pytest.param(
            UNPINNED,
            "onnx",
            "missing onnx/model.onnx; expected config.json, onnx/model.onnx; "
            "found README.md, config.json, model.onnx",
            id="in a folder",
        ),
        pytest.param(
            pypi(),
            "model.onnx",
            "missing model.onnx; expected model.onnx or the wheel toydet-1.0-*.whl; "
            "found README.md, config.json, onnx",
            id="member",
        ),
        pytest.param(URL, "*", "missing model.onnx; expected model.onnx; found nothing", id="*"),
        pytest.param(URL, "", "there is no such directory", id="no directory"),
    ],
)
def test_a_missing_file_is_named_with_those_expected_and_those_found(
    source: Source, absent: str, sentence: str, take: Take, folder: Path, directory: Path
) -> None:
    for path in directory.glob(absent) if absent else [directory]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(SourceError) as caught:
        take(source)
    assert str(caught.value) == f"cannot take toy from {directory}: {sentence}"
    assert not folder.exists()


def test_of_many_files_found_only_some_are_named(take: Take, directory: Path) -> None:
    (directory / "model.onnx").unlink()
    for number in range(20):
        (directory / f"a{number:02}").touch()
    with pytest.raises(SourceError, match=r"found README.md, a00, .*, a08, 13 more$"):
        take(URL)


def test_files_that_are_used_in_place_are_not_taken(
    take: Take, folder: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETSERVE_DATA", "/data")
    with pytest.raises(SourceError, match="the files of toy are used where they lie, in /data/a"):
        take(LocalSource(folder="a", files={"model.onnx": SHA}))
    assert not folder.exists()


def test_the_revision_of_a_directory_is_recorded_as_unknown_where_none_is_pinned(
    take: Take, folder: Path, said: list[str]
) -> None:
    unknown = "unknown (taken from a directory)"
    take(UNPINNED)
    assert revision(UNPINNED, "toy") == COMMIT  # as the catalogue says
    assert not any("recorded the revision" in line for line in said)
    shutil.rmtree(folder)
    take(MAIN)
    assert revision(MAIN, "toy") == unknown
    assert said[-1] == f"recorded the revision of toy: {unknown}"
    shutil.rmtree(folder)
    take(PINNED.model_copy(update={"revision": "main"}))
    assert revision(MAIN, "toy") == unknown


def test_files_equal_to_those_fetched_keep_the_commit_and_what_is_lost_is_put_back(
    publisher: Publisher, start: Start, take: Take, get: Get, folder: Path, directory: Path
) -> None:
    (directory / "config.json").write_bytes(BODY)
    publisher.published.add("config.json")
    process = start(MAIN, **publisher.as_hub)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0, output
    (folder / "config.json").unlink()
    (folder / "onnx" / "model.onnx").write_bytes(b"damaged")
    take(MAIN)
    assert revision(MAIN, "toy") == COMMIT
    assert get(MAIN)["onnx/model.onnx"].read_bytes() == BODY


def test_a_file_put_there_by_hand_but_not_recorded_gives_way(
    take: Take, folder: Path, said: list[str]
) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(BODY)
    take(UNPINNED)
    assert said[0] == f"replacing {folder / 'config.json'}: its sha256 is {SHA}"
    assert digests(UNPINNED, "toy")["config.json"] == WRONG


def test_a_cache_that_cannot_be_written_is_one_sentence(take: Take, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder belongs")
    with pytest.raises(SourceError, match=rf"^cannot take toy from {tmp_path}/published: .*home"):
        take(URL)


def test_where_one_file_cannot_be_put_none_is(take: Take, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "onnx").write_text("a file where the folder belongs")
    with pytest.raises(SourceError, match="cannot take toy from"):
        take(MAIN)
    assert list(folder.iterdir()) == [folder / "onnx"]
    assert leftovers(folder) == []


def test_taking_waits_for_another_process_that_fetches(directory: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    other = filelock.FileLock(folder.parent / ".toy.lock")
    other.acquire()
    before: list[str] = []

    def log(line: str) -> None:
        if other.is_locked:
            before.append(line)
            other.release()

    adopt(URL, "toy", directory, log=log)
    assert before == ["another process is fetching toy: waiting for it"]
    assert (folder / "model.onnx").read_bytes() == BODY


def test_a_file_taken_to_go_with_one_fetched_makes_the_revision_unknown(
    publisher: Publisher, start: Start, take: Take, directory: Path
) -> None:
    source = MAIN.model_copy(update={"files": {"model.onnx": None, "config.json": None}})
    process = start(source, **publisher.as_hub)  # which has no config.json
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 3, output
    assert revision(source, "toy") == COMMIT
    take(source)
    assert revision(source, "toy") == "unknown (taken from a directory)"
