"""What `serve_config.yaml` may say: the typed arguments of the two application builders.

Every field is described here and nowhere else; an unknown or contradictory field is refused with
its path.
"""

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from models.catalogue import summary
from models.engine import EngineName
from models.errors import ConfigError
from models.precision import Precision
from models.status import Status

# under /v1/, what the ingress answers itself (deployments/about.py)
OWN_PATHS = ("infer", "models", "metadata", "version", "manifest", "license", "metrics")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Autoscaling(_Strict):
    """Replicas that follow the load."""

    min_replicas: int = Field(
        1, ge=0, description="0: none while no image comes; the first one waits for one to load"
    )
    max_replicas: int = Field(ge=1)
    target_ongoing_requests: float = Field(
        2, gt=0, description="images in progress for each replica that the autoscaler aims at"
    )
    upscale_delay_s: float = Field(
        10, ge=0, description="seconds of more load before replicas are added; from none at once"
    )
    downscale_delay_s: float = Field(
        600, ge=0, description="seconds of less load before replicas are taken away"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas is above max_replicas")
        return self


class Resources(_Strict):
    """What Ray reserves for each replica."""

    cpus: float = Field(
        default=1, ge=0, description="CPUs reserved; the engine runs as many threads, at least one"
    )
    gpus: float = Field(default=0, ge=0, description="GPUs reserved, a fraction to share one")


class ModelArgs(_Strict):
    """Arguments of `deployments.app:build`: one served model. The application's name in
    serve_config.yaml is the name clients give in `model`."""

    checkpoint: str | None = Field(
        None, description="id in the catalogue; its bundle is built at start when there is none"
    )
    bundle: str | None = Field(
        None,
        description="instead of a checkpoint: folder of a built bundle, absolute or under "
        "DETSERVE_HOME/bundles",
    )
    engine: Literal["auto", EngineName] = Field(
        "auto",
        description="auto takes the fastest that can run here: tensorrt, onnxruntime-cuda (both "
        "need resources.gpus), onnxruntime",
    )
    precision: Literal["auto"] | Precision = Field(
        "auto", description="auto: the checkpoint's on a GPU, fp32 on the CPU"
    )
    threshold: float | None = Field(
        None, ge=0, le=1, description="smallest score returned; the checkpoint's own if left out"
    )
    require: Status | None = Field(
        None,
        description="smallest qualification status of a bundle that is served, such as "
        "aiperf-qualified; below it the model stays unready and says why",
    )
    replicas: int | None = Field(None, ge=1, description="fixed number of replicas; default 1")
    autoscaling: Autoscaling | None = Field(None, description="instead of replicas")
    max_batch: int = Field(
        1,
        ge=1,
        le=64,
        description="images in one engine call, of those that already wait; no answer changes by "
        "a bit: each size is tried when a replica starts, which fails where one would",
    )
    max_ongoing_requests: int | None = Field(
        None,
        ge=1,
        description="images that one replica works on at once, in the engine and being decoded; "
        "default 4, or two batches",
    )
    max_queued_requests: int = Field(
        128,
        ge=1,
        description="images that wait in each ingress for a free replica; above it 429 at once",
    )
    deadline_s: float | None = Field(
        None,
        gt=0,
        description="seconds until a request to this model is given up with 504, where the "
        "ingress's own deadline_s is not shorter",
    )
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.checkpoint is None) == (self.bundle is None):
            raise ValueError("give either checkpoint or bundle")
        if self.replicas is not None and self.autoscaling is not None:
            raise ValueError("give either replicas or autoscaling")
        if self.max_batch > self.ongoing_requests:
            raise ValueError("max_batch is above max_ongoing_requests: no batch would fill")
        return self

    @property
    def initial_replicas(self) -> int:
        """What is started at once: one at least, so that a bundle that cannot be served is known
        when it is deployed and not at the first image."""
        if self.autoscaling is not None:
            return max(1, self.autoscaling.min_replicas)
        return self.replicas or 1

    @property
    def largest_replicas(self) -> int:
        return self.autoscaling.max_replicas if self.autoscaling else self.initial_replicas

    @property
    def ongoing_requests(self) -> int:
        """`max_ongoing_requests`, or its default: while one batch computes the next gathers."""
        return self.max_ongoing_requests or max(4, 2 * self.max_batch)


class IngressArgs(_Strict):
    """Arguments of `deployments.app:ingress`: limits on what a request may ask for."""

    replicas: int = Field(1, ge=1)
    max_body_mb: float = Field(64, gt=0, description="request body in MiB; above it 413")
    max_images: int = Field(32, ge=1, description="images in one request")
    max_pixels: int = Field(
        50_000_000, ge=1, description="pixels of one image, checked before it is decoded"
    )
    deadline_s: float = Field(60, gt=0, description="seconds until a request is given up with 504")
    paths: dict[Annotated[str, Field(pattern=r"^/v1/[a-z0-9-]+$")], str] = Field(
        default_factory=dict,
        description="paths that take /v1/infer's body for one model, such as "
        "{/v1/page-elements: yolov8n-doclaynet}, which NIM 2.0 clients ask",
    )

    @field_validator("paths")
    @classmethod
    def _free(cls, paths: dict[str, str]) -> dict[str, str]:
        if taken := set(paths) & {f"/v1/{name}" for name in OWN_PATHS}:
            raise ValueError(f"{min(taken)} is the server's own")
        return paths


Args = TypeVar("Args", bound=_Strict)


def parse(kind: type[Args], args: dict[str, Any]) -> Args:
    """`args` of serve_config.yaml as `kind`.

    Raises:
        ConfigError: naming every field that is wrong.
    """
    try:
        return kind.model_validate(args)
    except ValidationError as error:
        raise ConfigError(f"serve_config.yaml, args: {summary(error)}") from error
