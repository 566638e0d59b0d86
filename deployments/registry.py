"""Which models the running Serve instance has, found by asking Serve.

The ingress needs no list of models: every application but its own is one, under the
application's name. So adding a model to serve_config.yaml is the whole change.
"""

import asyncio
import time
from dataclasses import dataclass

from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview

from deployments.console import say
from deployments.detector import Detector

DETECTOR = Detector.__name__
STARTING, WAITING = "starting", "waiting"  # how the reasons begin that may pass by themselves
STALE_S = 1.0  # how old the list may be for a request to a model it holds
FRESH_S = 0.2  # how old it may be for an answer that says what is not there


@dataclass(frozen=True)
class Model:
    """A configured model. `ready`: a warm replica answers. `reason`: why it does not."""

    name: str
    ready: bool
    reason: str | None
    handle: DeploymentHandle[Detector]


class Registry:
    """The configured models, refreshed from Serve's controller at most every `FRESH_S`.

    own: name of the ingress's application.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self._models: dict[str, Model] = {}
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

    async def _refresh(self) -> None:
        await self.current()


def _announce(before: dict[str, Model], now: dict[str, Model]) -> None:
    """Each change of state, to the terminal of `serve run`."""
    for name in before.keys() - now.keys():
        say(f"{name}: removed")
    for name, model in now.items():
        known = before.get(name)
        if known is None or (known.ready, known.reason) != (model.ready, model.reason):
            say(f"{name}: {'ready' if model.ready else model.reason}")


def _choose(models: dict[str, Model], name: str | None) -> Model | None:
    if name is not None:
        return models.get(name)
    return next(iter(models.values())) if len(models) == 1 else None


def _model(name: str, application: ApplicationStatusOverview, known: Model | None) -> Model:
    running = sum(
        count
        for deployment in application.deployments.values()  # none while Serve still builds it
        for state, count in deployment.replica_states.items()
        if state == "RUNNING"
    )
    ready = running > 0 or application.status == ApplicationStatus.RUNNING
    return Model(
        name,
        ready,
        None if ready else _reason(application),
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
