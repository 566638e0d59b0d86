"""Request records are each read once, whatever their writer does meanwhile."""

import os
import time
from pathlib import Path

import pytest

from deployments import records


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path))
    return records.folder()


def ids(since: float = 0) -> list[str]:
    return [record["id"] for record in records.read(since)]


def test_records_of_every_ingress_are_read() -> None:
    for replica in ("one", "two"):
        records.RecordWriter(replica).write({"id": replica})
    assert sorted(ids()) == ["one", "two"]


def test_a_file_that_is_renamed_between_being_seen_and_read_is_read_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    newest, older = folder / "r.jsonl", folder / "r.jsonl.1"
    newest.write_text('{"id": "b"}\n')
    older.write_text('{"id": "a"}\n')
    right = Path.open

    def rotating(path: Path, mode: str):
        opened = right(path, mode)
        if path == newest:  # what is named so was just opened, and is then moved on
            os.replace(older, folder / "r.jsonl.2")
            os.replace(newest, older)
        return opened

    monkeypatch.setattr(Path, "open", rotating)
    assert sorted(ids()) == ["a", "b"]


def test_a_line_that_is_still_being_written_is_none(folder: Path) -> None:
    folder.mkdir()
    (folder / "r.jsonl").write_text('{"id": "whole"}\n{"id": "ha')
    assert ids() == ["whole"]


def test_files_that_nothing_was_written_to_since_are_left_out(folder: Path) -> None:
    records.RecordWriter("r").write({"id": "old"})
    os.utime(folder / "r.jsonl", (1000, 1000))
    assert ids(since=time.time() - 60) == []
