"""Which models the running Serve instance has, found by asking Serve.

The ingress needs no list of models: every application but its own is one, under the
application's name. So adding a model to serve_config.yaml is the whole change.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview

from deployments.console import say
from deployments.detector import Detector

DETECTOR = Detector.__name__
# how the reasons begin that may pass by themselves
STARTING, WAITING, UPDATING = "starting", "waiting", "updating"
STALE_S = 1.0  # how old the list may be for a request to a model it holds
FRESH_S = 0.2  # how old it may be for an answer that says what is not there
DESCRIBE_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Model:
    """A configured model.

    ready: an image sent now is answered, by a warm replica or, where the model was scaled to
    zero, by one that it starts. reason: why it is not, or not yet as configured: a change, or more
    replicas, may wait or have failed while others serve on. replicas: that run. deployed_at: when
    Serve was last given its configuration, seconds since the epoch. settled: nothing of an earlier
    configuration runs any more.
    """

    name: str
    ready: bool
    reason: str | None
    replicas: int
    deployed_at: float
    settled: bool
    handle: DeploymentHandle[Detector]


class Registry:
    """The configured models, refreshed from Serve's controller at most every `FRESH_S`.

    own: name of the ingress's application.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self._models: dict[str, Model] = {}
        # by (name, deployed_at)
        self._described: dict[tuple[str, float], dict[str, Any]] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._background: asyncio.Task[None] | None = None

    async def current(self) -> dict[str, Model]:
        """Every configured model by name, at most `FRESH_S` old."""
        async with self._reading:
            if time.monotonic() - self._read_at > FRESH_S:
                status = await asyncio.to_thread(serve.status)
                before = self._models
                self._models = {
                    name: _model(name, application, self._models.get(name))
                    for name, application in sorted(status.applications.items())
                    if name != self._own and application.status != ApplicationStatus.DELETING
                }
                self._read_at = time.monotonic()
                _announce(before, self._models)
        return self._models

    async def find(self, name: str | None) -> Model | None:
        """The model to answer with: of that name, or the only one when no name is given."""
        found = _choose(self._models, name)
        if found is None or not found.ready:
            return _choose(await self.current(), name)
        if time.monotonic() - self._read_at > STALE_S and (
            self._background is None or self._background.done()
        ):
            self._background = asyncio.create_task(self._refresh())
        return found

    async def describe(self, model: Model) -> dict[str, Any] | None:
        """What a replica of it says of itself now (`Detector.describe`); of a model that was scaled
        to zero what one said last, and one is started where none ever did. None: no answer."""
        if model.replicas == 0 and (known := self._known(model)) is not None:
            return known
        try:
            async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                described: dict[str, Any] = await model.handle.describe.remote()
        except (TimeoutError, RayActorError, DeploymentUnavailableError, BackPressureError):
            return None
        if model.settled:
            self._described[model.name, model.deployed_at] = described
        return described

    async def learn(self) -> None:
        """Have every running model described once, before it may be scaled to zero."""
        models = await self.current()
        now = {(model.name, model.deployed_at) for model in models.values()}
        self._described = {key: value for key, value in self._described.items() if key in now}
        await asyncio.gather(
            *(
                self.describe(model)
                for model in models.values()
                if model.replicas and model.settled and self._known(model) is None
            )
        )

    async def deadline_s(self, model: Model) -> float | None:
        """The model's own deadline, or None where it has none."""
        known = self._known(model) or await self.describe(model)
        return known["config"]["deadline_s"] if known else None

    def _known(self, model: Model) -> dict[str, Any] | None:
        return self._described.get((model.name, model.deployed_at))

    async def _refresh(self) -> None:
        await self.current()


def _announce(before: dict[str, Model], now: dict[str, Model]) -> None:
    """Each change of state, to the terminal of `serve run`."""
    for name in before.keys() - now.keys():
        say(f"{name}: removed")
    for name, model in now.items():
        known = before.get(name)
        if known is None or (known.ready, known.reason) != (model.ready, model.reason):
            say(f"{name}: {model.reason or 'ready'}")


def _choose(models: dict[str, Model], name: str | None) -> Model | None:
    if name is not None:
        return models.get(name)
    return next(iter(models.values())) if len(models) == 1 else None


def _model(name: str, application: ApplicationStatusOverview, known: Model | None) -> Model:
    running = sum(
        count
        for deployment in application.deployments.values()
        for state, count in deployment.replica_states.items()
        if state == "RUNNING"
    )
    if not application.deployments and known is not None:
        # Serve lists none while it builds a changed application; what there was serves on
        running = known.replicas
    settled = application.status == ApplicationStatus.RUNNING
    reason = None if settled else _reason(application)
    if reason and running:
        passing = f"{UPDATING}: " if application.status == ApplicationStatus.DEPLOYING else ""
        reason = f"{passing}{reason}; {running} of its replicas serve meanwhile"
    return Model(
        name,
        running > 0 or settled,
        reason,
        running,
        application.last_deployed_time_s,
        settled,
        known.handle if known else serve.get_deployment_handle(DETECTOR, name, _check_exists=False),
    )


def _reason(application: ApplicationStatusOverview) -> str:
    """Why a model is not ready, in one sentence without paths or tracebacks."""
    messages = [deployment.message for deployment in application.deployments.values()]
    for message in (*messages, application.message):
        # the last line of a traceback reads "models.errors.BundleMismatch: what is wrong"
        for line in reversed(str(message or "").splitlines()):
            kind, colon, sentence = line.strip().partition(": ")
            if colon and kind.startswith("models.errors."):
                return sentence
        if "to be scheduled" in str(message):
            # Serve: "… Resources required for each replica: {…}, total resources available: {…}. …"
            resources = str(message).partition("Resources required")[2]
            return f"{WAITING} for resources: required{resources.partition('. ')[0]}"
    if application.status == ApplicationStatus.DEPLOYING:
        return STARTING
    return f"not running (Serve says {application.status.value}); its logs have the reason"
