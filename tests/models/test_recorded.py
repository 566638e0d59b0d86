"""What is recorded of files and revisions that the catalogue does not pin."""

import sys
from pathlib import Path

import pytest

from models.cache import digests, revision
from models.errors import SourceError
from models.sources import HuggingFaceSource
from tests.models.publisher import (
    BODY,
    COMMIT,
    MAIN_OF_TOY,
    SHA,
    WRONG,
    Get,
    Publisher,
    Start,
    leftovers,
)

UNPINNED = HuggingFaceSource(repo="toys/toy", revision=COMMIT, files={"model.onnx": None})


def test_a_file_without_a_digest_is_recorded_at_the_first_fetch_and_pinned_ever_after(
    publisher: Publisher,
    start: Start,
    get: Get,
    folder: Path,
) -> None:
    process = start(UNPINNED, **publisher.as_hub)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0, output
    assert f"recorded sha256 {SHA}: {folder / 'model.onnx'}" in output
    assert (folder / "SHA256SUMS").read_text() == f"{SHA}  model.onnx\n"
    assert digests(UNPINNED, "toy") == {"model.onnx": SHA}
    assert leftovers(folder) == []
    before = publisher.requests.total()
    assert get(UNPINNED) == {"model.onnx": folder / "model.onnx"}
    assert publisher.requests.total() == before

    (folder / "model.onnx").write_bytes(b"changed since")
    process = start(UNPINNED, **publisher.as_hub)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0, output
    assert "not the pinned one" in output
    assert f"verified sha256 {SHA}" in output
    assert (folder / "model.onnx").read_bytes() == BODY


def test_a_fetch_that_gives_another_file_than_was_recorded_is_refused(
    publisher: Publisher, start: Start, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "SHA256SUMS").write_text(f"{WRONG}  model.onnx\n")
    process = start(UNPINNED, **publisher.as_hub)
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
        digests(UNPINNED, "toy")


def test_a_damaged_record_is_named(get: Get, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "SHA256SUMS").write_text("model.onnx\n")
    with pytest.raises(SourceError, match=r"SHA256SUMS has a line that is not a sha256 and a name"):
        get(UNPINNED)


# --- the revision


MAIN = UNPINNED.model_copy(update={"revision": "main"})
LATER = COMMIT[::-1]
PAIR = MAIN.model_copy(update={"files": {"config.json": None, "onnx/model.onnx": None}})


def test_main_is_the_commit_of_the_first_fetch_ever_after(
    publisher: Publisher, start: Start, get: Get, folder: Path
) -> None:
    publisher.published.add("config.json")
    assert revision(PAIR, "toy") is None
    process = start(PAIR, **publisher.as_hub)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0, output
    assert f"main of toys/toy is the commit {COMMIT}\n" in output
    assert f"fetching onnx/model.onnx of toy from onnx/model.onnx of toys/toy@{COMMIT}" in output
    assert publisher.downloads() == {f"{COMMIT}/config.json": 1, f"{COMMIT}/onnx/model.onnx": 1}
    assert publisher.requests[f"GET {MAIN_OF_TOY}"] == 1  # once for all the files
    assert (folder / "REVISION").read_text() == f"{COMMIT}\n"
    assert revision(PAIR, "toy") == COMMIT
    assert digests(PAIR, "toy") == dict.fromkeys(PAIR.files, SHA)
    assert leftovers(folder) == []

    publisher.commit = LATER
    before = publisher.requests.total()
    assert get(PAIR) == {name: folder / name for name in PAIR.files}
    assert publisher.requests.total() == before

    (folder / "config.json").write_bytes(b"changed since")
    process = start(PAIR, **publisher.as_hub)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0, output
    assert publisher.downloads() == {f"{COMMIT}/config.json": 2, f"{COMMIT}/onnx/model.onnx": 1}
    assert publisher.requests[f"GET {MAIN_OF_TOY}"] == 1
    assert revision(PAIR, "toy") == COMMIT


def test_a_fetch_of_main_that_broke_off_goes_on_at_the_same_commit(
    publisher: Publisher, start: Start, folder: Path
) -> None:
    source = PAIR.model_copy(update={"files": {"model.onnx": None, "config.json": None}})
    process = start(source, **publisher.as_hub)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 3, output
    assert f"from config.json of toys/toy@{COMMIT}" in output
    assert revision(source, "toy") == COMMIT

    publisher.commit = LATER
    publisher.published.add("config.json")
    process = start(source, **publisher.as_hub)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 0, output
    assert set(publisher.downloads()) == {f"{COMMIT}/model.onnx", f"{COMMIT}/config.json"}
    assert revision(source, "toy") == COMMIT


@pytest.mark.parametrize(
    ("commit", "files", "env", "complaint"),
    [
        (None, {"model.onnx": None}, {}, "the commit of main of toys/toy is given as None"),
        ("main", {"model.onnx": None}, {}, "the commit of main of toys/toy is given as 'main'"),
        (COMMIT, {"model.onnx": None}, {"HF_HUB_OFFLINE": "1"}, "huggingface_hub: Cannot reach"),
        (COMMIT, {"absent.onnx": None}, {}, "huggingface_hub: 404"),
        (COMMIT, {"model.onnx": WRONG}, {}, f"not the pinned {WRONG}"),
    ],
)
def test_a_first_fetch_of_main_that_gives_no_file_records_no_revision(
    commit: str | None,
    files: dict[str, str | None],
    env: dict[str, str],
    complaint: str,
    publisher: Publisher,
    start: Start,
    folder: Path,
) -> None:
    publisher.commit = commit
    source = MAIN.model_copy(update={"files": files})
    process = start(source, **publisher.as_hub, **env)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 3, output
    assert complaint in output
    assert "Without network, put by hand" in output
    assert list(folder.iterdir()) == leftovers(folder) == []
    assert revision(source, "toy") is None


def test_the_revision_of_files_put_there_by_hand_is_recorded_as_unknown(
    get: Get, folder: Path, said: list[str]
) -> None:
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(BODY)
    get(MAIN)
    assert revision(MAIN, "toy") == "unknown (put there by hand)"
    assert said[-1] == "recorded the revision of toy: unknown (put there by hand)"
    assert revision(UNPINNED, "toy") == COMMIT  # as the catalogue says
    said.clear()
    get(MAIN)
    assert said == []


def test_nothing_is_fetched_to_go_with_files_of_an_unknown_revision(
    publisher: Publisher, start: Start, folder: Path
) -> None:
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model.onnx").write_bytes(BODY)
    publisher.published.add("config.json")
    process = start(PAIR, **publisher.as_hub)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 3, output
    assert "other files is unknown (put there by hand), so none can be fetched" in output
    assert f"to start anew, delete {folder} and what was built from it" in output
    assert publisher.requests.total() == 0

    (folder / "config.json").write_bytes(BODY)
    process = start(PAIR, **publisher.as_hub)
    assert process.communicate(timeout=30)[0].startswith("recorded sha256")
    assert process.returncode == 0


def test_what_is_known_of_a_file_is_recorded_before_the_file_is_there(
    start: Start, publisher: Publisher, folder: Path
) -> None:
    # Stopped in between, a file without a record would be taken for one put there by hand.
    (folder / "model.onnx").mkdir(parents=True)
    process = start(MAIN, **publisher.as_hub)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 3, output
    assert "SourceError cannot keep the files of toy" in output
    assert revision(MAIN, "toy") == COMMIT
    assert digests(MAIN, "toy") == {"model.onnx": SHA}
