"""What the catalogue may say of where files come from."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from models.sources import HuggingFaceSource, LocalSource, Source
from tests.models.publisher import COMMIT, SHA, pypi


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
            {"type": "huggingface", "repo": "a/b", "revision": "v1.0", "files": {"m": SHA}},
            "revision",
        ),
        (
            {"type": "huggingface", "repo": "a/b", "revision": COMMIT[:7], "files": {"m": SHA}},
            "revision",
        ),
        (
            {"type": "huggingface", "repo": "a/b", "revision": "main\n", "files": {"m": SHA}},
            "revision",
        ),
        ({"type": "huggingface", "repo": "a/b", "revision": COMMIT, "files": {}}, "files"),
        (
            {"type": "huggingface", "repo": "a/b", "revision": COMMIT, "files": {"../m": SHA}},
            "files",
        ),
        ({"type": "huggingface", "repo": "a/b", "revision": COMMIT, "files": {"/m": SHA}}, "files"),
        ({"type": "local", "folder": "a", "files": {}}, "files"),
        ({"type": "local", "folder": "", "files": {"m": SHA}}, "folder"),
        ({"type": "local", "folder": "a", "files": {"m": None}}, "files"),
        ({"type": "local", "folder": "a", "files": {"../m": SHA}}, "files"),
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
    ],
)
def test_a_single_file_is_called_by_the_last_part_of_its_path(
    fields: dict[str, str], names: list[str]
) -> None:
    source = TypeAdapter(Source).validate_python(fields | {"sha256": SHA})
    assert source.files == dict.fromkeys(names, SHA)


def test_a_source_read_back_from_json_is_the_same() -> None:
    for source in (
        pypi(),
        HuggingFaceSource(repo="a/b", revision=COMMIT, files={"m": SHA}),
        HuggingFaceSource(repo="a/b", revision="main", files={"m": None}),
        LocalSource(folder="a", files={"m": SHA, "b/m": SHA}),
    ):
        assert TypeAdapter(Source).validate_python(json.loads(source.model_dump_json())) == source
