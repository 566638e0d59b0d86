"""What a serve_config.yaml asks for, read without starting anything.

Serve itself takes unknown fields in silence and finds a wrong argument when it builds the
application it belongs to; here all of it is found at once, for scripts/check_config.py and for the
campaign that is about to start the file.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.schema import HTTPOptionsSchema, ServeApplicationSchema, ServeDeploySchema

from deployments.config import IngressArgs, ModelArgs, parse
from models.catalogue import summary
from models.errors import ConfigError

Unit = Literal["cpus", "gpus"]
INGRESS, MODEL = "deployments.app:ingress", "deployments.app:build"


@dataclass(frozen=True)
class Plan:
    """host, port: of the HTTP front. ingress: the name of its application. models: arguments by
    name, of those that are right. refused: what is wrong with the others, by name."""

    host: str
    port: int
    ingress: str
    models: Mapping[str, ModelArgs]
    refused: Mapping[str, str]

    def initial(self, unit: Unit) -> float:
        """What Ray must place at once."""
        each = (
            getattr(args.resources, unit) * args.initial_replicas for args in self.models.values()
        )
        return round(math.fsum(each), 6)

    def largest(self, unit: Unit) -> float:
        """What the autoscaler may come to."""
        each = (
            getattr(args.resources, unit) * args.largest_replicas for args in self.models.values()
        )
        return round(math.fsum(each), 6)


def read(path: Path) -> Plan:
    """The plan of a file. Applications of builders that are not Detserve's are left to Serve.

    Raises:
        ConfigError: the file as a whole cannot be served; the sentence has the field's path.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        schema = ServeDeploySchema.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"{path.name}: {summary(error)}") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path.name} cannot be read: {error}") from error
    _no_unknown(path.name, document, ServeDeploySchema)
    _no_unknown(path.name, document.get("http_options") or {}, HTTPOptionsSchema, "http_options.")
    for index, application in enumerate(document["applications"]):
        _no_unknown(path.name, application, ServeApplicationSchema, f"applications.{index}.")
    ingresses = [each for each in schema.applications if each.import_path == INGRESS]
    if len(ingresses) != 1:
        raise ConfigError(
            f"{path.name}: one application has the import_path {INGRESS}, and here {len(ingresses)}"
        )
    try:
        limits = parse(IngressArgs, ingresses[0].args)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: application {ingresses[0].name}: {error}") from error
    http = schema.http_options
    if http.request_timeout_s is not None and http.request_timeout_s <= limits.deadline_s:
        raise ConfigError(
            f"{path.name}: http_options.request_timeout_s is {http.request_timeout_s:g} and the "
            f"ingress's deadline_s {limits.deadline_s:g}: Serve would answer before the ingress can"
        )
    served = {each.name for each in schema.applications if each.import_path != INGRESS}
    for bound, model in limits.paths.items():
        if model not in served:
            raise ConfigError(f"{path.name}: {bound} is bound to {model}, which is not in the file")
    models, refused = {}, {}
    for each in schema.applications:
        if each.import_path != MODEL:
            continue
        try:
            models[each.name] = parse(ModelArgs, each.args)
            if each.route_prefix is not None:
                raise ConfigError("a model needs `route_prefix: null`: requests go to the ingress")
        except ConfigError as error:
            models.pop(each.name, None)
            refused[each.name] = str(error)
    return Plan(http.host, http.port, ingresses[0].name, models, refused)


def _no_unknown(file: str, given: dict[str, Any], kind: type[BaseModel], path: str = "") -> None:
    if unknown := sorted(set(given) - set(kind.model_fields)):
        known = ", ".join(sorted(kind.model_fields))
        raise ConfigError(f"{file}: {path}{unknown[0]}: unknown field; there are {known}")
