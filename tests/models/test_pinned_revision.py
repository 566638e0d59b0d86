"""Where the catalogue pins a commit but no digests, files of another commit are refused."""

import functools
import shutil
from pathlib import Path

import pytest

from models.adopt import adopt
from models.cache import digests, revision
from models.errors import SourceMismatch
from models.fetch import fetch
from models.sources import MAIN, HuggingFaceSource
from tests.models.publisher import BODY, COMMIT, SHA, Get, Publisher, Start

LATER = COMMIT[::-1]
AT_COMMIT = HuggingFaceSource(repo="toys/toy", revision=COMMIT, files={"model.onnx": None})
AT_LATER = AT_COMMIT.model_copy(update={"revision": LATER})
AT_MAIN = AT_COMMIT.model_copy(update={"revision": MAIN})


def arrive(
    how: str, source: HuggingFaceSource, start: Start, publisher: Publisher, folder: Path
) -> None:
    """The file of a source that pins no digest comes to the cache."""
    if how == "fetched":
        process = start(source, **publisher.as_hub)
        output = process.communicate(timeout=30)[0]
        assert process.returncode == 0, output
        return
    directory = folder if how == "put there by hand" else folder.parents[2] / "published"
    directory.mkdir(parents=True)
    (directory / "model.onnx").write_bytes(BODY)
    if how == "put there by hand":
        fetch(source, "toy", "Toy-1.0", log=lambda _: None)
    else:
        adopt(source, "toy", directory, log=lambda _: None)


@pytest.mark.parametrize("how", ["fetched", "put there by hand", "taken from a directory"])
def test_files_of_one_commit_are_not_served_as_those_of_another(
    how: str, start: Start, get: Get, publisher: Publisher, folder: Path
) -> None:
    arrive(how, AT_COMMIT, start, publisher, folder)
    assert (folder / "REVISION").read_text() == f"{COMMIT}\n"
    before = publisher.requests.total()
    bundles = folder.parents[1] / "bundles" / "toy"
    sentence = (
        f"the files in {folder} are of the revision {COMMIT}, and the catalogue now pins {LATER}; "
        f"to start anew, delete {folder} and what was built from it, {bundles}"
    )
    adopting = functools.partial(adopt, checkpoint="toy", log=lambda _: None)
    for use in (
        lambda: get(AT_LATER),
        lambda: digests(AT_LATER, "toy"),
        lambda: adopting(AT_LATER, directory=folder),
    ):
        with pytest.raises(SourceMismatch) as caught:
            use()
        assert str(caught.value) == sentence
    assert publisher.requests.total() == before
    assert get(AT_COMMIT) == {"model.onnx": folder / "model.onnx"}  # the catalogue is set back
    assert digests(AT_COMMIT, "toy") == {"model.onnx": SHA}

    shutil.rmtree(folder)
    arrive("fetched", AT_LATER, start, publisher, folder)
    assert publisher.downloads()[f"{LATER}/model.onnx"] == 1
    assert (folder / "REVISION").read_text() == f"{LATER}\n"


@pytest.mark.parametrize("how", ["fetched", "put there by hand", "taken from a directory"])
def test_pinning_the_commit_that_main_was_keeps_the_files_and_another_refuses_them(
    how: str, start: Start, get: Get, publisher: Publisher, folder: Path
) -> None:
    arrive(how, AT_MAIN, start, publisher, folder)
    if how == "fetched":
        assert get(AT_COMMIT) == {"model.onnx": folder / "model.onnx"}
        assert revision(AT_COMMIT, "toy") == COMMIT
    else:  # nobody knows whether they are of that commit
        with pytest.raises(SourceMismatch, match=rf"of the revision unknown \({how}\), and the"):
            get(AT_COMMIT)
    with pytest.raises(SourceMismatch, match=rf"and the catalogue now pins {LATER}; to start anew"):
        get(AT_LATER)


def test_main_after_a_pinned_commit_is_that_commit(
    start: Start, get: Get, publisher: Publisher, folder: Path
) -> None:
    arrive("fetched", AT_COMMIT, start, publisher, folder)
    assert get(AT_MAIN) == {"model.onnx": folder / "model.onnx"}
    assert revision(AT_MAIN, "toy") == COMMIT


def test_a_fetch_that_broke_off_is_not_gone_on_with_at_another_commit(
    publisher: Publisher, start: Start, folder: Path
) -> None:
    source = AT_COMMIT.model_copy(update={"files": {"model.onnx": None, "config.json": None}})
    process = start(source, **publisher.as_hub)  # which has no config.json
    assert process.communicate(timeout=30)
    publisher.published.add("config.json")
    process = start(source.model_copy(update={"revision": LATER}), **publisher.as_hub)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 3, output
    assert f"SourceMismatch the files in {folder} are of the revision {COMMIT}" in output
    assert publisher.downloads() == {f"{COMMIT}/model.onnx": 1}


def test_where_the_catalogue_pins_every_digest_another_commit_may_have_the_same_files(
    start: Start, get: Get, publisher: Publisher, folder: Path
) -> None:
    pinned = AT_COMMIT.model_copy(update={"files": {"model.onnx": SHA}})
    arrive("fetched", pinned, start, publisher, folder)
    before = publisher.requests.total()
    at_next = pinned.model_copy(update={"revision": LATER})
    assert get(at_next) == {"model.onnx": folder / "model.onnx"}
    assert publisher.requests.total() == before
    with pytest.raises(SourceMismatch, match=f"are of the revision {COMMIT}"):
        get(AT_LATER)  # without the digest nothing says so any more
