"""serve_config.yaml: the file that ships is accepted, and a mistake is answered with its path."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.config import Autoscaling, IngressArgs, ModelArgs, Resources, parse
from models.catalogue import known
from models.errors import ConfigError

DEFAULT = Path(__file__).parents[2] / "serve_config.yaml"
APPLICATIONS = yaml.safe_load(DEFAULT.read_text())["applications"]
BUILDERS = {"deployments.app:build": ModelArgs, "deployments.app:ingress": IngressArgs}


@pytest.mark.parametrize("application", APPLICATIONS, ids=lambda one: one["name"])
def test_every_application_of_the_default_file_is_accepted(application: dict[str, Any]) -> None:
    args = parse(BUILDERS[application["import_path"]], application["args"])
    if isinstance(args, ModelArgs):
        assert args.checkpoint in known()
        assert application["route_prefix"] is None
        assert args.resources.gpus == 0  # the default runs on a machine with no GPU


def test_the_default_file_has_one_ingress_and_waits_longer_than_it() -> None:
    document = yaml.safe_load(DEFAULT.read_text())
    ingresses = [one for one in APPLICATIONS if one["import_path"] == "deployments.app:ingress"]
    assert [one["route_prefix"] for one in ingresses] == ["/"]
    limits = parse(IngressArgs, ingresses[0]["args"])
    assert document["http_options"]["request_timeout_s"] > limits.deadline_s


def test_a_model_needs_no_more_than_its_checkpoint() -> None:
    assert parse(ModelArgs, {"checkpoint": "yolox-nano"}) == ModelArgs(
        checkpoint="yolox-nano",
        bundle=None,
        engine="auto",
        threshold=None,
        replicas=None,
        autoscaling=None,
        resources=Resources(cpus=1, gpus=0),
    )


def test_everything_that_may_be_said_is_taken() -> None:
    args = {
        "bundle": "yolox-nano/0123",
        "engine": "onnxruntime",
        "threshold": 0.5,
        "autoscaling": {
            "min_replicas": 2,
            "max_replicas": 4,
            "target_ongoing_requests": 1.5,
            "upscale_delay_s": 0,
            "downscale_delay_s": 60,
        },
        "deadline_s": 2.5,
        "resources": {"cpus": 2, "gpus": 0.25},
    }
    model = parse(ModelArgs, args)
    assert model.autoscaling == Autoscaling(
        min_replicas=2,
        max_replicas=4,
        target_ongoing_requests=1.5,
        upscale_delay_s=0,
        downscale_delay_s=60,
    )
    assert model.deadline_s == 2.5
    assert model.initial_replicas == 2
    assert model.resources == Resources(cpus=2, gpus=0.25)
    limits = {
        "replicas": 2,
        "max_body_mb": 1.5,
        "max_images": 1,
        "max_pixels": 1,
        "deadline_s": 0.5,
        "paths": {"/v1/page-elements": "yolox-nano"},
    }
    assert parse(IngressArgs, limits).model_dump() == limits


MODEL = {"checkpoint": "yolox-nano"}


@pytest.mark.parametrize(
    ("scaling", "first"),
    [
        ({}, 1),
        ({"replicas": 3}, 3),
        ({"autoscaling": {"max_replicas": 3}}, 1),
        ({"autoscaling": {"min_replicas": 0, "max_replicas": 3}}, 1),
        ({"autoscaling": {"min_replicas": 2, "max_replicas": 3}}, 2),
    ],
)
def test_a_model_begins_with_one_replica_at_least(scaling: dict[str, Any], first: int) -> None:
    assert parse(ModelArgs, MODEL | scaling).initial_replicas == first


@pytest.mark.parametrize(
    ("kind", "args", "sentence"),
    [
        (ModelArgs, MODEL | {"colour": 1}, "colour: unknown field"),
        (ModelArgs, MODEL | {"resources": {"gpu": 1}}, "resources.gpu: unknown field"),
        (
            ModelArgs,
            MODEL | {"autoscaling": {"max_replicas": 1, "up": 1}},
            "autoscaling.up: unknown field",
        ),
        (ModelArgs, {}, "give either checkpoint or bundle"),
        (ModelArgs, MODEL | {"bundle": "a/b"}, "give either checkpoint or bundle"),
        (
            ModelArgs,
            MODEL | {"replicas": 1, "autoscaling": {"max_replicas": 2}},
            "give either replicas or autoscaling",
        ),
        (ModelArgs, MODEL | {"autoscaling": {}}, "autoscaling.max_replicas: Field required"),
        (
            ModelArgs,
            MODEL | {"autoscaling": {"min_replicas": 3, "max_replicas": 2}},
            "autoscaling: Value error, min_replicas is above max_replicas",
        ),
        (
            ModelArgs,
            MODEL | {"autoscaling": {"min_replicas": -1, "max_replicas": 2}},
            "autoscaling.min_replicas: Input should be greater than or equal to 0",
        ),
        (
            ModelArgs,
            MODEL | {"autoscaling": {"max_replicas": 2, "upscale_delay_s": -1}},
            "autoscaling.upscale_delay_s: Input should be greater than or equal to 0",
        ),
        (ModelArgs, MODEL | {"deadline_s": 0}, "deadline_s: Input should be greater than 0"),
        (ModelArgs, MODEL | {"engine": "tensorflow"}, "engine: Input should be 'auto'"),
        (ModelArgs, MODEL | {"threshold": 1.5}, "threshold: Input should be less than or equal"),
        (ModelArgs, MODEL | {"threshold": -0.1}, "threshold: Input should be greater than"),
        (ModelArgs, MODEL | {"replicas": 0}, "replicas: Input should be greater than or equal"),
        (ModelArgs, MODEL | {"replicas": "many"}, "replicas: Input should be a valid integer"),
        (ModelArgs, MODEL | {"resources": {"cpus": -1}}, "resources.cpus: Input should be greater"),
        (ModelArgs, {"checkpoint": 5}, "checkpoint: Input should be a valid string"),
        (IngressArgs, {"max_bodies": 1}, "max_bodies: unknown field"),
        (IngressArgs, {"max_images": 0}, "max_images: Input should be greater than or equal"),
        (IngressArgs, {"max_pixels": 0}, "max_pixels: Input should be greater than or equal"),
        (IngressArgs, {"max_body_mb": 0}, "max_body_mb: Input should be greater than 0"),
        (IngressArgs, {"deadline_s": 0}, "deadline_s: Input should be greater than 0"),
        (IngressArgs, {"paths": {"/v1/models": "m"}}, "/v1/models is the server's own"),
        (IngressArgs, {"paths": {"page": "m"}}, "String should match pattern"),
        (IngressArgs, {"replicas": 0}, "replicas: Input should be greater than or equal"),
        (IngressArgs, {"max_images": "all"}, "max_images: Input should be a valid integer"),
    ],
)
def test_a_mistake_is_answered_with_its_path(
    kind: type[Any], args: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(kind, args)
    assert str(caught.value).startswith("serve_config.yaml, args: ")
    assert sentence in str(caught.value)


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(ModelArgs, MODEL | {"colour": 1, "threshold": 2, "resources": {"gpus": "two"}})
    for path in ("colour: ", "threshold: ", "resources.gpus: "):
        assert path in str(caught.value)
