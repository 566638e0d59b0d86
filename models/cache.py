"""A checkpoint's folder in the cache: its files, what is recorded of them, and its lock.

Why one module: files that are fetched (models/fetch.py), taken from a directory (models/adopt.py)
or put there by hand are kept and checked in one way.

Layout under `home() / "checkpoints"`, for a checkpoint called NAME:

    NAME/            the verified files; people without network put them here by hand
    NAME/SHA256SUMS  digests of the files that the catalogue does not pin, as they were when they
                     first arrived (the format of sha256sum --check)
    NAME/REVISION    of a Hugging Face repository: the commit in the catalogue when the files came;
                     where it says `main`, the commit that was at the first fetch, or "unknown
                     (...)" when the files came by another way
    .NAME.lock       held while one process brings files
    .NAME.part/      what is arriving; dropped by whoever holds the lock next
"""

import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

import filelock

from models.errors import SourceError, SourceMismatch
from models.home import home
from models.sources import MAIN, HuggingFaceSource, LocalSource, Published, Source

DIGESTS = "SHA256SUMS"
REVISION = "REVISION"

Log = Callable[[str], None]


def digests(source: Source, checkpoint: str) -> dict[str, str]:
    """sha256 of each of the checkpoint's files: as pinned, or as recorded when it first arrived.

    Raises:
        SourceMismatch: what is recorded is of another revision than the pinned one.
        SourceError: a digest is neither pinned nor recorded.
    """
    if isinstance(source, LocalSource):
        return dict(source.files)
    pins = CheckpointFolder.of(checkpoint).pins(source)
    found = {name: digest for name, digest in pins.items() if digest}
    if unknown := pins.keys() - found:
        raise SourceError(f"{checkpoint}: no sha256 is known of {', '.join(sorted(unknown))}")
    return found


def revision(source: Source, checkpoint: str) -> str | None:
    """The commit that the checkpoint's files are of: as pinned, or as `main` was when first
    fetched.

    "unknown (...)" says why where the files did not come from the repository. None: the source
    has no commits, or nothing has been fetched yet.
    """
    if not isinstance(source, HuggingFaceSource):
        return None
    return CheckpointFolder.of(checkpoint).revision(source)


@dataclass(frozen=True)
class CheckpointFolder:
    """One checkpoint's folder; it need not exist."""

    path: Path

    @classmethod
    def of(cls, checkpoint: str) -> "CheckpointFolder":
        return cls(home() / "checkpoints" / checkpoint)

    @property
    def start_anew(self) -> str:
        """How to be rid of what is recorded, for the end of a sentence."""
        bundles = home() / "bundles" / self.path.name
        return f"to start anew, delete {self.path} and what was built from it, {bundles}"

    def pins(self, source: Published) -> dict[str, str | None]:
        """The digest of each file: pinned, or else recorded, or None when neither.

        Raises:
            SourceMismatch: what is recorded is of another revision than the pinned one.
        """
        self._require_revision(source)
        recorded = self._recorded_digests()
        return {name: digest or recorded.get(name) for name, digest in source.files.items()}

    def revision(self, source: HuggingFaceSource) -> str | None:
        """The commit: pinned, or else what is recorded, or None when neither."""
        return self._recorded_revision() if source.revision == MAIN else source.revision

    def missing(self, source: Published) -> dict[str, str | None]:
        """Files not there with the right digest: name -> the digest found, or None if absent."""
        missing = {}
        for name, pin in self.pins(source).items():
            path = self.path / name
            digest = sha256(path) if path.is_file() else None
            if digest is None or digest != pin:
                missing[name] = digest
        return missing

    def check(self, source: Published, name: str, digest: str, what: str) -> None:
        """Whether a file of that digest may become `name`; `what` begins the refusal.

        Raises:
            SourceMismatch: another digest is pinned or recorded.
        """
        pin = self.pins(source)[name]
        if pin is None or digest == pin:
            return
        if source.files[name]:
            raise SourceMismatch(f"{what} has sha256 {digest}, not the pinned {pin}")
        raise SourceMismatch(
            f"{what} has sha256 {digest}, not {pin}, which {self.path / DIGESTS} has from when "
            f"the file first arrived; {self.start_anew}"
        )

    @contextmanager
    def locked(self, log: Log) -> Iterator[Path]:
        """Holds the folder, made if absent, for this process alone.

        Yields an empty folder on the same file system for what is arriving; it is dropped again.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        parts = self.path.with_name(f".{self.path.name}.part")
        lock = filelock.FileLock(self.path.with_name(f".{self.path.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            log(f"another process is fetching {self.path.name}: waiting for it")
            lock.acquire()
        try:
            shutil.rmtree(parts, ignore_errors=True)  # of a run that was killed: the lock is ours
            parts.mkdir(exist_ok=True)
            yield parts
        finally:
            shutil.rmtree(parts, ignore_errors=True)
            lock.release()

    def record(self, digests: dict[str, str], revision: str | None, parts: Path) -> None:
        """Write the digests of files that have none yet and, unless None, the revision.

        Before the files themselves appear: a run killed in between leaves no file that is taken
        for one put there by hand. Each record is written whole or not at all.
        """
        if revision:
            self._write(REVISION, revision, parts)
        if digests:
            known = self._recorded_digests() | digests
            self._write(
                DIGESTS, "\n".join(f"{each}  {name}" for name, each in known.items()), parts
            )

    def forget(self, names: Collection[str], parts: Path) -> None:
        """Drop these files and their records; with the last record goes the revision."""
        kept = {name: each for name, each in self._recorded_digests().items() if name not in names}
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        (self.path / DIGESTS).unlink(missing_ok=True)
        if kept:
            self.record(kept, None, parts)
        else:
            (self.path / REVISION).unlink(missing_ok=True)

    def _require_revision(self, source: Published) -> None:
        """Where no digest is pinned, the files that are here would be right for any commit."""
        if not isinstance(source, HuggingFaceSource) or source.revision == MAIN:
            return
        found = self._recorded_revision()
        if None in source.files.values() and found not in (None, source.revision):
            raise SourceMismatch(
                f"the files in {self.path} are of the revision {found}, and the catalogue now pins "
                f"{source.revision}; {self.start_anew}"
            )

    def _recorded_revision(self) -> str | None:
        """What REVISION says."""
        path = self.path / REVISION
        return path.read_text().strip() if path.is_file() else None

    def _write(self, name: str, text: str, parts: Path) -> None:
        (parts / name).write_text(text + "\n")
        (parts / name).replace(self.path / name)

    def _recorded_digests(self) -> dict[str, str]:
        """What SHA256SUMS says: name -> digest."""
        path = self.path / DIGESTS
        lines = path.read_text().splitlines() if path.is_file() else []
        found = {}
        for line in lines:
            digest, _, name = line.partition("  ")
            if not re.fullmatch(r"[0-9a-f]{64}", digest) or not name:
                raise SourceError(f"{path} has a line that is not a sha256 and a name: {line!r}")
            found[name] = digest
        return found


def sha256(path: Path) -> str:
    """The file's digest in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
