"""The OpenAPI 3.1 document of the wire, `GET /openapi.json`.

Written by hand: the ingress checks requests in an order of its own (deployments/wire.py), which no
framework derives from a model. tests/deployments/test_openapi.py holds it against the running
server with schemathesis, in both directions.
"""

from typing import Any

from deployments.config import IngressArgs
from deployments.wire import REQUEST_ID

Schema = dict[str, Any]

NUMBER = {"type": "number", "minimum": 0, "maximum": 1}
IDENTITY = {"X-Request-ID": {"schema": {"type": "string"}, "required": True}}


def document(version: str, limits: IngressArgs) -> Schema:
    infer = _infer(limits)
    bound = {
        path: {"post": _bound(infer, path, model)} for path, model in sorted(limits.paths.items())
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Detserve",
            "version": version,
            "description": "Object detection in the shape of NVIDIA's NIMs.",
        },
        "paths": {
            "/v1/infer": {"post": infer},
            **bound,
            "/v1/models": _page("Models that are served", _listing()),
            "/v1/metadata": _page("Version, models, licences, limits", _any_object()),
            "/v1/version": _page("Release and wire version", _texts("release", "api")),
            "/v1/manifest": _page("Checkpoints and bundles", _texts("manifest_file")),
            "/v1/license": _page("Licences of what is served", _license()),
            "/v1/metrics": _page("Prometheus metrics", None),
            "/v1/health/live": _page("200 while the process answers", _health("live")),
            "/v1/health/ready": _page(
                "200 when every configured model answers", _health("ready"), also_503=True
            ),
            "/openapi.json": _page("This document", _any_object()),
        },
        "components": {"schemas": {"Error": _error()}},
    }


def _infer(limits: IngressArgs) -> Schema:
    return {
        "operationId": "infer",
        "summary": "Detect objects on images",
        "parameters": [_request_id()],
        "requestBody": {"required": True, "content": _json(_request(limits))},
        "responses": {
            "200": {
                "description": "One item of `data` for each image, in order",
                "headers": {
                    **IDENTITY,
                    "Server-Timing": {"schema": {"type": "string"}, "required": True},
                },
                "content": _json(_answer()),
            },
            **_errors(
                {
                    400: "not JSON, or a bad X-Request-ID",
                    404: "no such model",
                    413: "the body is too large",
                    415: "an image of a type that is not taken",
                    422: "not a request for detections, or an image that is damaged or too large",
                    429: "every queue is full; Retry-After",
                    500: "the model failed",
                    503: "the model is not ready",
                    504: "past the deadline",
                }
            ),
        },
    }


def _bound(infer: Schema, path: str, model: str) -> Schema:
    return infer | {
        "operationId": path.strip("/").replace("/", "_"),
        "summary": f"Detect objects with {model}",
    }


def _page(summary: str, schema: Schema | None, *, also_503: bool = False) -> Schema:
    content = _json(schema) if schema is not None else {"text/plain": {}}
    found = {"description": summary, "headers": IDENTITY, "content": content}
    responses = {"200": found} | ({"503": found} if also_503 else {})
    return {
        "get": {
            "summary": summary,
            "parameters": [_request_id()],
            "responses": responses | _errors({400: "a bad X-Request-ID"}),
        }
    }


def _request(limits: IngressArgs) -> Schema:
    item = {
        "type": "object",
        "required": ["type", "url"],
        "properties": {
            "type": {"const": "image_url"},
            "url": {
                "type": "string",
                "description": "data:image/jpeg;base64,… or PNG; the content decides",
                "pattern": "^[Dd][Aa][Tt][Aa]:[^,]*;[Bb][Aa][Ss][Ee]64,",
            },
        },
    }
    return {
        "type": "object",
        "required": ["input"],
        "properties": {
            "model": {
                "type": ["string", "null"],
                "description": "as in /v1/models; may be left out when there is one",
            },
            "input": {
                "type": "array",
                "minItems": 1,
                "maxItems": limits.max_images,
                "items": item,
            },
        },
    }


def _answer() -> Schema:
    box = {
        "type": "object",
        "required": ["x_min", "y_min", "x_max", "y_max", "confidence", "class_id"],
        "properties": {
            **dict.fromkeys(("x_min", "y_min", "x_max", "y_max", "confidence"), NUMBER),
            "class_id": {"type": "integer", "minimum": 0},
        },
    }
    item = {
        "type": "object",
        "required": ["index", "bounding_boxes"],
        "properties": {
            "index": {"type": "integer", "minimum": 0},
            "bounding_boxes": {
                "type": "object",
                "additionalProperties": {"type": "array", "items": box, "minItems": 1},
            },
        },
    }
    return {
        "type": "object",
        "required": ["data", "model", "usage"],
        "properties": {
            "data": {"type": "array", "items": item, "minItems": 1},
            "model": {"type": "string"},
            "usage": _object(images_size_mb={"type": "number", "exclusiveMinimum": 0}),
        },
    }


def _listing() -> Schema:
    entry = {
        "type": "object",
        "required": ["id", "object", "owned_by", "ready", "replicas"],
        "properties": {
            "id": {"type": "string"},
            "object": {"const": "model"},
            "owned_by": {"type": "string"},
            "ready": {"type": "boolean"},
            "replicas": {"type": "integer", "minimum": 0},
            "reason": {"type": "string"},
            "root": {"type": "string", "description": "the checkpoint"},
            "bundle_digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        },
    }
    return _object(object={"const": "list"}, data={"type": "array", "items": entry})


def _license() -> Schema:
    return _texts("name", "path", "sha", "url", "type", "content", size={"type": "integer"})


def _health(key: str) -> Schema:
    return _object(
        object={"const": "health.response"},
        message={"type": "string"},
        **{key: {"type": "boolean"}},
    )


def _error() -> Schema:
    inner = _object(
        code={"type": "string"}, message={"type": "string"}, request_id={"type": "string"}
    )
    inner["properties"]["index"] = {"type": "integer", "minimum": 0}
    return _object(error=inner)


def _errors(descriptions: dict[int, str]) -> Schema:
    content = _json({"$ref": "#/components/schemas/Error"})
    responses: Schema = {
        str(status): {"description": text, "headers": IDENTITY, "content": content}
        for status, text in descriptions.items()
    }
    if "429" in responses:
        wait = {"Retry-After": {"schema": {"type": "string"}, "required": True}}
        responses["429"]["headers"] = IDENTITY | wait
    return responses


def _request_id() -> Schema:
    return {
        "name": "X-Request-ID",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "pattern": f"^{REQUEST_ID.pattern}$"},
    }


def _texts(*names: str, **more: Schema) -> Schema:
    return _object(**{name: {"type": "string"} for name in names}, **more)


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _any_object() -> Schema:
    return {"type": "object"}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
