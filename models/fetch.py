"""`fetch`: a checkpoint's published files, from the cache or from their publisher, verified.

Why here alone: whoever needs the files asks for them here and gets bytes that have the pinned
sha256, or a sentence that says which file to put where.
"""

import http.client
import re
import tempfile
from pathlib import Path

from models.cache import CheckpointFolder, Log, sha256
from models.downloads import commit_of_main, download
from models.errors import SourceError, SourceMismatch
from models.home import data
from models.sources import (
    COMMIT,
    MAIN,
    HuggingFaceSource,
    LocalSource,
    Published,
    PyPISource,
    Source,
)

BY_HAND = "unknown (put there by hand)"


def fetch(source: Source, checkpoint: str, licence: str, *, log: Log) -> dict[str, Path]:
    """The checkpoint's files, verified: file name -> path.

    Files that are in the cache already cost a digest each and no network. `checkpoint` names the
    folder in the cache, `licence` is shown to the user before anything is fetched. `log` receives
    sentences, at times from another thread.

    Raises:
        SourceMismatch: a local file, or what was fetched, does not have the pinned sha256; or the
            cache has files of another revision than the pinned one.
        SourceError: anything else; the message says which file to put where by hand.
    """
    try:
        if isinstance(source, LocalSource):
            return _local(source)
        folder = CheckpointFolder.of(checkpoint)
        if folder.missing(source):  # asked before the lock: a read-only cache serves too
            with folder.locked(log) as parts:
                _take_what_was_put_there(source, folder, parts, log)
                _fetch_missing(source, folder, parts, licence, log)
        return {name: folder.path / name for name in source.files}
    except OSError as error:
        raise SourceError(f"cannot keep the files of {checkpoint}: {error}") from error


def _local(source: LocalSource) -> dict[str, Path]:
    paths = {name: data() / source.folder / name for name in source.files}
    for name, path in paths.items():
        pinned = source.files[name]
        if not path.is_file():
            raise SourceError(
                f"there is no file {path} (sha256 {pinned}); relative folders are looked for "
                f"under DETSERVE_DATA, which is now {data()}"
            )
        if (digest := sha256(path)) != pinned:
            raise SourceMismatch(f"{path} has sha256 {digest}, not the pinned {pinned}")
    return paths


def _take_what_was_put_there(
    source: Published, folder: CheckpointFolder, parts: Path, log: Log
) -> None:
    """Records the files that lie in the folder and whose digest is not known."""
    pins = folder.pins(source)
    found = {
        name: digest
        for name, digest in folder.missing(source).items()
        if digest and pins[name] is None
    }
    if not found:
        return
    revision = source.revision if isinstance(source, HuggingFaceSource) else None
    of_main = revision == MAIN
    folder.record(found, BY_HAND if of_main else revision, parts)
    for name, digest in found.items():
        log(f"recorded sha256 {digest} of {folder.path / name}, put there")
    if of_main:
        log(f"recorded the revision of {folder.path.name}: {BY_HAND}")


def _fetch_missing(
    source: Published, folder: CheckpointFolder, parts: Path, licence: str, log: Log
) -> None:
    """Everything missing, file by file: what has arrived need not be fetched again."""
    missing = folder.missing(source)  # nothing any more if another process was faster
    published = source  # at a commit from the first download on
    for name, wrong in list(missing.items()):
        if wrong:
            log(f"replacing {folder.path / name}: its sha256 is {wrong}, not the pinned one")
        # A name of its own: a pip that outlived its killed parent must not write into this one.
        staging = Path(tempfile.mkdtemp(dir=parts))
        try:
            published = _at_commit(published, folder, log)
            log(f"fetching {name} of {folder.path.name} from {published.origin(name)}")
            log(f"licence: {licence}")
            staged = download(published, name, folder.path, staging, log)
            digest = sha256(staged)
            folder.check(source, name, digest, f"{name} from {published.origin(name)}")
        except (OSError, http.client.HTTPException, SourceError) as error:
            kind = SourceMismatch if isinstance(error, SourceMismatch) else SourceError
            reason = f"cannot fetch {name} of {folder.path.name}: {error}"
            raise kind(reason + _by_hand(published, folder, missing)) from error
        new = folder.pins(source)[name] is None
        commit = published.revision if isinstance(published, HuggingFaceSource) else None
        folder.record({name: digest} if new else {}, commit, parts)
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        staged.replace(folder.path / name)
        log(f"{'recorded' if new else 'verified'} sha256 {digest}: {folder.path / name}")
        del missing[name]


def _at_commit(source: Published, folder: CheckpointFolder, log: Log) -> Published:
    """The source with `main` replaced by the recorded commit or, when none is, today's.

    Raises:
        SourceError: today's cannot be had, or the files here are of an unknown one.
    """
    if not isinstance(source, HuggingFaceSource) or source.revision != MAIN:
        return source
    commit = folder.revision(source)
    if commit is None:
        commit = commit_of_main(source.repo)
        log(f"{MAIN} of {source.repo} is the commit {commit}")
    elif not re.fullmatch(COMMIT, commit):
        raise SourceError(
            f"the revision of its other files is {commit}, so none can be fetched to go with "
            f"them; {folder.start_anew}"
        )
    return source.model_copy(update={"revision": commit})


def _by_hand(source: Published, folder: CheckpointFolder, missing: dict[str, str | None]) -> str:
    lines = ["", "Without network, put by hand what the next run then checks and takes:"]
    for name, wrong in missing.items():
        pin = folder.pins(source)[name]
        lines += [f"  {folder.path / name}", f"    sha256 {pin or 'not known yet: recorded then'}"]
        lines += [f"    (the file there now has {wrong})"] if wrong else []
        lines += [f"    from {source.origin(name)}"]
    if isinstance(source, PyPISource):
        lines += [f"  or the wheel itself: {folder.path / source.wheel}"]
    return "\n".join(lines)
