"""What the server says of itself: the GET paths of the ingress, NIM's among them.

NIM's clients read `health`, `models`, `metadata`, `version`, `manifest` and `license`; their shapes
are NVIDIA's. The OpenAPI document of all paths is deployments/openapi.py.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson
from starlette.responses import Response

from deployments import openapi
from deployments.config import IngressArgs
from deployments.metrics import CONTENT_TYPE, Metrics
from deployments.registry import Model, Registry

JSON = "application/json"
API_VERSION = "1.0.0"  # of the wire, in NIM's sense

Page = Callable[[], Awaitable[Response]]


class About:
    """The pages, by path."""

    def __init__(self, registry: Registry, metrics: Metrics, limits: IngressArgs) -> None:
        self._registry = registry
        self._metrics = metrics
        self._limits = limits
        self.pages: dict[str, Page] = {
            "/v1/models": self._models,
            "/v1/metadata": self._metadata,
            "/v1/version": self._version,
            "/v1/manifest": self._manifest,
            "/v1/license": self._license,
            "/v1/metrics": self._scrape,
            "/v1/health/live": self._live,
            "/v1/health/ready": self._ready,
            "/openapi.json": self._openapi,
        }

    async def _models(self) -> Response:
        return _json({"object": "list", "data": await self._entries()})

    async def _metadata(self) -> Response:
        ready = await self._ready_entries()
        return _json(
            {
                "version": _release(),
                "modelInfo": [
                    {
                        "shortName": f"{entry['id']}:{entry['bundle_digest'][:12]}",
                        "modelUrl": entry["root"],
                    }
                    for entry in ready
                ],
                "assetInfo": [],
                "licenseInfo": {entry["id"]: entry["licence"] for entry in ready},
                "limits": self._limits.model_dump(),
            }
        )

    async def _version(self) -> Response:
        return _json({"release": _release(), "api": API_VERSION})

    async def _manifest(self) -> Response:
        """NIM's manifest is a text; ours is JSON: each model's checkpoint and bundle."""
        keys = ("checkpoint", "bundle_digest", "engine", "precision")
        models = {
            entry["id"]: {key: entry[key] for key in keys} for entry in await self._ready_entries()
        }
        return _json({"manifest_file": orjson.dumps(models).decode()})

    async def _license(self) -> Response:
        content = "".join(
            f"{entry['id']} ({entry['root']}): {entry['licence']}\n"
            for entry in await self._ready_entries()
        )
        return _json(
            {
                "name": "licences.txt",
                "path": "/v1/license",
                "sha": hashlib.sha1(content.encode(), usedforsecurity=False).hexdigest(),
                "size": len(content),
                "url": "",
                "type": "file",
                "content": content,
            }
        )

    async def _scrape(self) -> Response:
        models = (await self._registry.current()).values()
        content = await asyncio.to_thread(self._metrics.scrape, models)
        return Response(content, media_type=CONTENT_TYPE)

    async def _live(self) -> Response:
        return _json({"object": "health.response", "message": "live", "live": True})

    async def _ready(self) -> Response:
        models = await self._registry.current()
        waiting = {model.name: model.reason for model in models.values() if not model.ready}
        ready = bool(models) and not waiting
        content: dict[str, Any] = {
            "object": "health.response",
            "message": "ready" if ready else "not ready",
            "ready": ready,
        }
        if waiting:
            content["waiting_for"] = waiting
        return _json(content, status=200 if ready else 503)

    async def _openapi(self) -> Response:
        return _json(openapi.document(_release(), self._limits))

    async def _entries(self) -> list[dict[str, Any]]:
        models = (await self._registry.current()).values()
        return list(await asyncio.gather(*map(self._entry, models)))

    async def _ready_entries(self) -> list[dict[str, Any]]:
        return [entry for entry in await self._entries() if entry["ready"]]

    async def _entry(self, model: Model) -> dict[str, Any]:
        """One model of /v1/models."""
        entry: dict[str, Any] = {
            "id": model.name,
            "object": "model",
            "owned_by": "detserve",
            "ready": model.ready,
            "replicas": model.replicas,
        }
        if model.reason:
            entry["reason"] = model.reason
        if not model.ready:
            return entry
        described = await self._registry.describe(model)
        if described is None:
            return entry | {"ready": False, "reason": "its replica does not answer"}
        return entry | {"root": described["checkpoint"], **described}


def _release() -> str:
    try:
        return version("detserve")
    except PackageNotFoundError:  # run from a checkout that was put on PYTHONPATH
        return "not installed"


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status_code=status, media_type=JSON)
