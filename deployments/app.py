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

# How often the autoscaler is told of the load, and over how many seconds it takes the mean. Serve's
# 10 and 30 would add as much to every delay of the configuration, and to waking a model from zero.
# Serve calls the first field deprecated, but its replacement, two environment variables, is read
# nowhere in 2.60.
AUTOSCALING = {"metrics_interval_s": 1, "look_back_period_s": 5}

# Requests that one ingress replica holds at once; it mostly waits for detectors.
MAX_INGRESS_ONGOING = 512


def build(args: dict[str, Any]) -> Application:
    """One model. Its name is the application's name; `args` are `ModelArgs`.

    Raises:
        ConfigError: a field of `args` is unknown, missing or contradictory.
    """
    model = parse(ModelArgs, args)
    scaling: dict[str, Any] = {"num_replicas": model.initial_replicas}
    if model.autoscaling is not None:
        first = {"initial_replicas": model.initial_replicas}
        scaling = {"autoscaling_config": model.autoscaling.model_dump() | AUTOSCALING | first}
    deployment = serve.deployment(
        max_ongoing_requests=model.ongoing_requests,
        max_queued_requests=model.max_queued_requests,
        # a changed model's replicas go when their successors are up: no request is lost, and one
        # that cannot start, for want of resources too, leaves what was there
        max_surge_percent=100,
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
