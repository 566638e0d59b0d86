"""Where a checkpoint's published files come from: what the catalogue's YAML may say.

Why pinned: Detserve redistributes no weights. Every file comes from its publisher, under the
publisher's licence, and nothing is trusted but its sha256: not the index, not the mirror, not the
cache folder. Where the sha256 is not known beforehand it is recorded when the file first arrives,
and from then on it is pinned like any other (models/cache.py).
"""

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

COMMIT = "[0-9a-f]{40}"
MAIN = "main"  # a revision that is not known yet: the commit of the first fetch is recorded


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
    def address(self) -> str:
        """The publisher and the revision, in words."""
        return f"{self.package}=={self.version} (PyPI)"

    @property
    def wheel(self) -> str:
        """The wheel's file name as a pattern."""
        return f"{re.sub(r'[-_.]+', '_', self.package).lower()}-{self.version}-*.whl"

    def is_wheel(self, name: str) -> bool:
        """Whether a file of that name is a wheel of this package and version."""
        package, version, *_ = [*name.split("-"), ""]
        plain = [re.sub(r"[-_.]+", "_", each).lower() for each in (package, self.package)]
        wanted = version.lower() == self.version.lower()
        return name.endswith(".whl") and plain[0] == plain[1] and wanted

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
        pattern=rf"^({COMMIT}|{MAIN})$",
        description="The full commit, as branches and tags move; `main` where it is not known "
        "yet: the commit of the first fetch is recorded in the cache and used ever after.",
    )
    files: dict[PlainPath, Sha256 | None] = Field(
        min_length=1,
        description="Path in the repository -> sha256 of the file; null: the digest of the first "
        "fetch is recorded in the cache and checked ever after.",
    )

    @property
    def address(self) -> str:
        """The publisher and the revision, in words."""
        return f"{self.repo}@{self.revision} (Hugging Face)"

    def origin(self, name: str) -> str:
        return f"{name} of {self.address}"


class URLSource(_Source):
    """One file at an address."""

    type: Literal["url"] = Field("url", description="A file fetched over HTTP.")
    url: HttpUrl = Field(description="http:// or https://; the last part names the file.")
    sha256: Sha256 = Field(description="Digest of the file.")

    @property
    def files(self) -> dict[str, str | None]:
        return {_url_name(self.url): self.sha256}

    @property
    def address(self) -> str:
        """The publisher and the revision, in words."""
        return self.url

    def origin(self, name: str) -> str:
        return self.url


class LocalSource(_Source):
    """Files that are already on this machine: used in place, not copied."""

    type: Literal["local"] = Field("local", description="A folder on this machine.")
    folder: str = Field(min_length=1, description="Absolute, or relative to DETSERVE_DATA.")
    files: dict[PlainPath, Sha256] = Field(
        min_length=1, description="Path in the folder -> sha256 of the file."
    )

    @property
    def address(self) -> str:
        """The publisher and the revision, in words: nobody says, so the files' digests stand."""
        return ", ".join(f"{name} with sha256 {each}" for name, each in self.files.items())


Published = PyPISource | HuggingFaceSource | URLSource
Source = Annotated[Published | LocalSource, Field(discriminator="type")]
