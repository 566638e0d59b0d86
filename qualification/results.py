"""`results.json`: the document of a campaign, one row a model. docs/results.md explains it.

Every field is described here; `schema()` is the JSON Schema that ships with each run.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from models.status import Status
from qualification.gates import Gate
from qualification.mean_ap import MeanAP
from qualification.statistics import Statistics


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Percentiles(_Row):
    """Milliseconds over the measured requests."""

    p50_ms: float
    p95_ms: float


class Performance(_Row):
    """An AIPerf run, client and server apart."""

    requests: int = Field(description="measured requests, the warm-up left out")
    client: Percentiles = Field(description="client latency: request sent to response read")
    images_per_s: float = Field(description="measured images / time from first start to last end")
    handler: Percentiles = Field(description="the ingress, from request to response")
    queue: Percentiles = Field(description="routing, transport and waiting before the Task call")
    task_call_wall: Percentiles = Field(description="Task call: decode to detections")
    stages: dict[str, Percentiles] = Field(description="of the Task call")
    command: list[str] = Field(description="the AIPerf command")


class SweepPoint(_Row):
    """An AIPerf run under load, every response of it verified."""

    point: str = Field(description="stage of the run; its gates begin with it")
    concurrency: int | None = Field(description="requests at once; null where a rate is held")
    rate: float | None = Field(description="requests begun each second")
    passed: bool = Field(description="its three gates did")
    requests: int = Field(description="sent, the warm-up's too")
    verified: int = Field(description="answers equal to the native result of their own image")
    mismatches: int = Field(description="requests less those verified")
    boxes: int = Field(description="boxes in all answers")
    joins: int = Field(description="requests with exactly one server record")
    errors: int = Field(description="requests without an answer of status 200")
    replicas: int = Field(description="replicas of the model that answered")
    largest_batch: int = Field(1, description="most images that shared one engine call")
    performance: Performance | None


class ImageSizes(_Row):
    """Of the dataset's images, as stored."""

    count: int
    bytes_min: int
    bytes_median: int
    bytes_max: int
    height_range: tuple[int, int] = Field(description="pixels")
    width_range: tuple[int, int] = Field(description="pixels")


class DatasetIdentity(_Row):
    name: str
    digest: str = Field(description="sha256 over files and selection")


class ModelRow(_Row):
    """One model's outcome."""

    model: str = Field(description="served name")
    passed: bool = Field(
        description="the status is at least the expected one, and no gate that was judged failed"
    )
    status: Status
    reason: str | None = Field(None, description="why the status is not the highest there is")
    gates: list[Gate] = Field(description="in the order they were judged; later ones are not run")
    not_run: dict[str, str] = Field(description="stage that was left out -> why")
    checkpoint: str | None = Field(None, description="id in the catalogue")
    family: str | None = None
    bundle_digest: str | None = None
    engine: str | None = None
    precision: str | None = Field(None, description="effective precision of the engine")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="canvas, threshold, licence and versions of the bundle"
    )
    dataset: DatasetIdentity | None = None
    images: ImageSizes | None = None
    native: MeanAP | None = Field(None, description="mAP of the served engine")
    reference: MeanAP | None = Field(None, description="mAP of the family's reference")
    statistics: Statistics | None = None
    performance: Performance | None = None
    promoted: bool = Field(False, description="this run signed the bundle off (--promote)")
    sweep: list[SweepPoint] = Field(default_factory=list, description="runs under load")
    pictures: list[str] = Field(default_factory=list, description="files beside results.json")
    seconds: float = Field(description="wall time of this model's stages")


class Environment(_Row):
    """Where the campaign ran. No host names, users or absolute paths."""

    python: str
    packages: dict[str, str] = Field(description="package -> version")
    platform: str
    cpu: str
    cores: int
    memory_gib: float
    gpus: list[str] = Field(description="name and driver, empty without an NVIDIA GPU")
    git_commit: str | None
    git_diff_sha256: str | None = Field(description="of uncommitted changes, None when clean")


class Results(_Row):
    schema_version: Literal[2] = 2
    run: str = Field(description="the run's folder name")
    started: str = Field(description="ISO 8601, UTC")
    command: str = Field(description="reproduces the run from the project's folder")
    expected: Status = Field(description="what a model must reach to pass")
    passed: bool = Field(description="every requested model passed")
    environment: Environment
    rows: list[ModelRow]


def schema() -> dict[str, Any]:
    return Results.model_json_schema()
