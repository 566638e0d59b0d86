"""Builders of the Ray Serve applications that serve_config.yaml names.

`build` makes one model's application, `ingress` the one in front that owns the HTTP routes. Each
model is an application of its own so that adding, changing or losing one never restarts another
(docs/decisions/applications.md); the ingress finds them by itself.
"""

from typing import Any

from ray import serve
from ray.serve import Application

from deployments.config import IngressArgs, ModelArgs, parse
from deployments.detector import Detector
from deployments.ingress import Ingress

# Requests that one ingress replica holds at once; it mostly waits for detectors.
MAX_INGRESS_ONGOING = 512


def build(args: dict[str, Any]) -> Application:
    """One model. Its name is the application's name; `args` are `ModelArgs`.

    Raises:
        ConfigError: a field of `args` is unknown, missing or contradictory.
    """
    model = parse(ModelArgs, args)
    scaling: dict[str, Any] = (
        {"autoscaling_config": model.autoscaling.model_dump()}
        if model.autoscaling
        else {"num_replicas": model.replicas or 1}
    )
    deployment = serve.deployment(
        max_ongoing_requests=model.ongoing_requests,
        max_queued_requests=model.max_queued_requests,
        ray_actor_options={"num_cpus": model.resources.cpus, "num_gpus": model.resources.gpus},
        **scaling,
    )
    return deployment(Detector).bind(model)


def ingress(args: dict[str, Any]) -> Application:
    """The HTTP front; `args` are `IngressArgs`.

    Raises:
        ConfigError: a field of `args` is unknown or out of range.
    """
    limits = parse(IngressArgs, args)
    deployment = serve.deployment(
        num_replicas=limits.replicas,
        max_ongoing_requests=MAX_INGRESS_ONGOING,
        health_check_period_s=2,
        ray_actor_options={"num_cpus": 0},
    )
    return deployment(Ingress).bind(limits)
