"""`Ingress`: the HTTP front. Checks, routing by model name, identity and wire format; no images
are decoded here and no engine is held.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence
from typing import Any

from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from deployments import wire
from deployments.about import JSON, About
from deployments.config import IngressArgs
from deployments.detector import TaskResult
from deployments.metrics import Metrics, shared_folder
from deployments.records import RecordWriter
from deployments.registry import Model, Registry
from models.errors import (
    BodyTooLarge,
    DeadlineExceeded,
    DetectionFailed,
    DetserveError,
    ImageError,
    MalformedRequest,
    MethodNotAllowed,
    ModelUnavailable,
    Overloaded,
    UnknownModel,
    UnknownPath,
)

logger = logging.getLogger("ray.serve")

CLIENT_LEFT = 499  # nginx's status for a client that closed the connection
RETRY_AFTER_S = 1

BAD_REQUEST_ID = MalformedRequest(
    "X-Request-ID must be 1 to 128 letters, digits or ._:/- and begin with a letter or digit"
)

Record = dict[str, Any]


class Ingress:
    """Answers every HTTP request of the application."""

    def __init__(self, limits: IngressArgs) -> None:
        self._limits = limits
        self._max_body = int(limits.max_body_mb * 1024**2)
        context = serve.get_replica_context()
        self._registry = Registry(own=context.app_name)
        self._replica = context.replica_id.unique_id
        self._records = RecordWriter(self._replica)
        self._metrics = Metrics(shared_folder())
        self._pages = About(self._registry, self._metrics, limits).pages
        # NIM 2.0 names the model by the path alone
        self._models: dict[str, str | None] = {"/v1/infer": None, **limits.paths}

    async def __call__(self, request: Request) -> Response:
        """One request to one answer and, where it is for detections, exactly one record."""
        start = time.perf_counter()
        claimed = request.headers.get("x-request-id")
        accepted = claimed is None or wire.REQUEST_ID.fullmatch(claimed)
        request_id = claimed if claimed and accepted else uuid.uuid4().hex
        record: Record = {"id": request_id, "time": time.time(), "status": CLIENT_LEFT}
        try:
            if not accepted:
                response = _error(BAD_REQUEST_ID, request_id)
            else:
                response = await self._answer(request, request_id, record)
            record["status"] = response.status_code
        finally:  # also when Serve cancels the request because its client left
            record |= {"replica": self._replica, "handler_ms": (time.perf_counter() - start) * 1e3}
            if request.url.path in self._models:
                self._records.write(record)
                self._metrics.observe(record)
        response.headers["x-request-id"] = request_id
        if "tasks" in record:
            response.headers["server-timing"] = wire.server_timing(record)
        return response

    async def _answer(self, request: Request, request_id: str, record: Record) -> Response:
        """The only place where errors become HTTP."""
        try:
            return await self._route(request, record)
        except DetserveError as error:
            record["error"] = error.code
            return _error(error, request_id)
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        except Exception:
            logger.exception("request %s failed", request_id)
            record["error"] = DetserveError.code
            return _error(DetserveError("an internal error; the server's log has it"), request_id)

    async def check_health(self) -> None:
        """Asked by Serve every few seconds; a look at the models announces what has changed."""
        await self._registry.learn()

    async def _route(self, request: Request, record: Record) -> Response:
        path = request.url.path
        detects = path in self._models
        if not detects and path not in self._pages:
            raise UnknownPath(f"no such path; there are {', '.join((*self._models, *self._pages))}")
        method = "POST" if detects else "GET"
        if request.method != method:
            raise MethodNotAllowed(method)
        return await (self._infer(request, record) if detects else self._pages[path]())

    async def _infer(self, request: Request, record: Record) -> Response:
        body = await self._body(request)
        record["body_bytes"] = len(body)
        parsed = await asyncio.to_thread(wire.parse_request, body, self._limits)
        record |= {
            "images": len(parsed.images),
            "image_bytes": sum(map(len, parsed.images)),
        }
        model = await self._choose(self._models[request.url.path] or parsed.model)
        record["model"] = model.name
        results = await self._detect(model, parsed.images, record)
        content = wire.response(
            model.name,
            [(result.detections, result.labels) for result in results],
            parsed.images_size_mb,
        )
        return Response(content, media_type=JSON)

    async def _body(self, request: Request) -> bytes:
        """The body, given up as soon as its declared or streamed size passes the limit."""
        refusal = BodyTooLarge(
            f"the body is over {self._limits.max_body_mb:g} MiB, the most this server reads"
        )
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self._max_body:
            raise refusal
        chunks, size = [], 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > self._max_body:
                raise refusal
            chunks.append(chunk)
        return b"".join(chunks)

    async def _choose(self, name: str | None) -> Model:
        model = await self._registry.find(name)
        if model is None:
            served = ", ".join(await self._registry.current()) or "no model at all"
            asked = "no model of that name is" if name is not None else "`model` is needed:"
            raise UnknownModel(f"{asked} served here; this server has {served}")
        if not model.ready:
            raise ModelUnavailable(f"{model.name} is not ready: {model.reason}")
        return model

    async def _detect(
        self, model: Model, encoded: Sequence[bytes], record: Record
    ) -> list[TaskResult]:
        """One Task call for each image, all at once; Serve spreads them over the replicas."""
        own = await self._registry.deadline_s(model)
        deadline_s = min(self._limits.deadline_s, own or self._limits.deadline_s)
        sent = time.perf_counter()
        calls = [model.handle.detect.remote(data, self._limits.max_pixels) for data in encoded]
        self._metrics.begin(model.name, len(encoded))
        try:
            async with asyncio.timeout(deadline_s):
                results = await asyncio.gather(*calls)
        except TimeoutError as error:
            whose = model.name if deadline_s == own else "the server"
            raise DeadlineExceeded(
                f"no answer within {deadline_s:g} s, the deadline of {whose}"
            ) from error
        except BackPressureError as error:
            raise Overloaded(f"every replica of {model.name} is busy and its queue full") from error
        except (RayActorError, DeploymentUnavailableError) as error:
            raise ModelUnavailable(f"a replica of {model.name} was lost; try again") from error
        except Exception as error:
            logger.exception("detection by %s failed", model.name)
            raise DetectionFailed(f"{model.name} failed on this image") from error
        finally:
            self._metrics.end(model.name, len(encoded))
            for call in calls:
                call.cancel()  # type: ignore[no-untyped-call]  # a call that is done stays so
        waited = (time.perf_counter() - sent) * 1e3
        for index, result in enumerate(results):
            if isinstance(result, ImageError):
                result.index = index
                raise result
        record |= {
            "bundle_digest": results[0].bundle_digest,
            "tasks": [
                {
                    "replica": result.replica,
                    "task_call_wall_ms": result.task.task_call_wall_ms,
                    # routing, transport and waiting for a free replica or thread
                    "queue_ms": waited - result.task.task_call_wall_ms,
                    "stages_ms": result.task.stages_ms,
                    "batch": result.task.batch,
                }
                for result in results
            ],
        }
        return list(results)


def _error(error: DetserveError, request_id: str) -> Response:
    headers = {}
    if isinstance(error, Overloaded):
        headers["retry-after"] = str(RETRY_AFTER_S)
    elif isinstance(error, MethodNotAllowed):
        headers["allow"] = error.allow
    return Response(
        wire.error_body(error, request_id),
        status_code=error.status,
        headers=headers,
        media_type=JSON,
    )
