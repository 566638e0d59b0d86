"""Reconciliation: what is served against what is catalogued, and against what it was before.

A campaign reaches a model by two ways, HTTP and Serve's handle. Unless both lead to the same
bundle under the same settings, and still do at the end, a figure would belong to nothing.
"""

from collections.abc import Mapping
from typing import Any

from models.catalogue import Checkpoint
from qualification.gates import Gate

# What decides the answers of a served model. `qualification` and `promoted` may change meanwhile.
SERVED = (
    "checkpoint",
    "family",
    "engine",
    "precision",
    "weights",
    "canvas",
    "labels",
    "threshold",
    "bundle_digest",
    "config",
)
# Of these the catalogue has the last word; labels are judged by the owning case, by name.
CATALOGUED = ("family", "weights", "canvas", "licence")


def reconciliation(
    checkpoint: Checkpoint, described: Mapping[str, Any], listed: Mapping[str, Any] | None
) -> Gate:
    """described: by the replica, through its handle. listed: in `/v1/models`, None if it is not."""
    catalogued = checkpoint.model_dump(mode="json", include=set(CATALOGUED))
    config = described["config"]
    asked = {name: config[name] for name in ("engine", "precision") if config[name] != "auto"}
    if config["bundle"] is None:  # which brings a checkpoint and a threshold under its digest
        asked |= {"checkpoint": config["checkpoint"], "threshold": checkpoint.threshold}
    if config["threshold"] is not None:
        asked["threshold"] = config["threshold"]
    problems = [
        f"{name} is {described[name]!r}, {origin} has {value!r}"
        for origin, expected in (
            ("the catalogue", catalogued),
            ("the config", asked),
        )
        for name, value in expected.items()
        if described[name] != value
    ]
    if listed is None:
        problems.append("/v1/models does not list it")
    else:
        problems += [
            f"{name} in /v1/models is not the replica's"
            for name in SERVED
            if listed.get(name) != described[name]
        ]
    return Gate(
        name="reconciliation",
        passed=not problems,
        measured={
            name: described[name]
            for name in ("checkpoint", "engine", "precision", "threshold", "bundle_digest")
        },
        needed="catalogue, config, /v1/models and the replica agree",
        detail="; ".join(problems[:3]),
    )


def unchanged(before: Mapping[str, Any], after: Mapping[str, Any]) -> Gate:
    """What is served after the last stage is what was served before the first."""
    changed = [name for name in SERVED if before[name] != after[name]]
    return Gate(
        name="unchanged",
        passed=not changed,
        measured={"compared": len(SERVED), "changed": len(changed)},
        needed="the same model, threshold and config as at the start",
        detail=", ".join(f"{name} changed" for name in changed),
    )
