"""Faults for the tests that show every gate failing: wrong bundles, wrong detectors, and a proxy
that tampers."""

import dataclasses
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import orjson
import uvicorn
from onnx import helper, numpy_helper
from ray import serve
from ray.serve import Application
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.config import ModelArgs, parse
from deployments.detector import Detector
from models import building, catalogue
from models.detections import Detections
from models.engine import ENGINE_FILES
from models.home import home

ENGINE = "onnxruntime"
ENGINE_FILE = ENGINE_FILES[ENGINE]

# (headers, number of this /v1/infer request by this client, status, body) -> (status, body)
Tamper = Callable[[Any, int, int, bytes], tuple[int, bytes]]


def wrong_bundle(
    of: str,
    name: str,
    *,
    graph: Callable[[onnx.ModelProto], None] | None = None,
    labels: Callable[[tuple[str, ...]], tuple[str, ...]] | None = None,
) -> str:
    """A copy of the checkpoint `of`'s bundle with a changed graph or labels, sealed as if it had
    been built so. Returns the folder to give as `bundle` in serve_config.yaml."""
    checkpoint = catalogue.load(of)
    built = building.ensure(checkpoint, ENGINE, "fp32", log=print)
    folder = home() / "bundles" / "wrong" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(built.folder, folder)
    if graph is not None:
        model = onnx.load(folder / ENGINE_FILE)
        graph(model)
        onnx.save(model, folder / ENGINE_FILE)
    if labels is not None:
        checkpoint = checkpoint.model_copy(update={"labels": labels(checkpoint.labels)})
    building.seal(folder, checkpoint, ENGINE, "fp32", {})
    return str(folder)


def output_through(output: str, operator: str, value: float) -> Callable[[onnx.ModelProto], None]:
    """A graph edit: `output` becomes `operator(output, value)`."""

    def edit(model: onnx.ModelProto) -> None:
        (last,) = (node for node in model.graph.node if output in node.output)
        last.output[0] = f"{output}/right"
        constant = numpy_helper.from_array(np.array(value, np.float32), f"{output}/value")
        model.graph.initializer.append(constant)
        model.graph.node.append(
            helper.make_node(operator, [f"{output}/right", constant.name], [output])
        )

    return edit


def random_weights(model: onnx.ModelProto, spread: float = 1) -> None:
    """A graph edit: every convolution's weights are drawn anew, with the spread they had or a
    share of it."""
    generator = np.random.default_rng(0)
    for initializer in model.graph.initializer:
        if len(initializer.dims) == 4:
            weights = numpy_helper.to_array(initializer)
            drawn = generator.normal(weights.mean(), spread * weights.std(), weights.shape)
            initializer.CopyFrom(
                numpy_helper.from_array(drawn.astype(np.float32), initializer.name)
            )


def change_one_byte(path: Path) -> None:
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)


def drop_one_box(body: bytes) -> bytes:
    """The response without the last box of its first label."""
    document = orjson.loads(body)
    boxes = document["data"][0]["bounding_boxes"]
    label = next(iter(boxes))
    boxes[label].pop()
    if not boxes[label]:
        del boxes[label]
    return orjson.dumps(document)


class Caching(Detector):
    """Keeps its answers: an image that it has seen never reaches the engine again."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        self._kept: dict[Any, Any] = {}

    async def detect(self, image: bytes, *arguments: Any) -> Any:
        key = (image, *arguments)
        if key not in self._kept:
            self._kept[key] = await super().detect(image, *arguments)
        return self._kept[key]


class Remembering(Detector):
    """Scores are a little lower after an image that was larger, as over a buffer that is not
    cleared."""

    _before = 0

    def _decode(self, *arguments: Any, **named: Any) -> Detections:
        found = super()._decode(*arguments, **named)
        before, self._before = self._before, found.height * found.width
        return lowered(found) if before > self._before else found


class Distracted(Detector):
    """Scores are a little lower while another image is being worked on."""

    _ongoing = 0

    async def detect(self, *arguments: Any) -> Any:
        self._ongoing += 1
        found = await super().detect(*arguments)
        alone, self._ongoing = self._ongoing == 1, self._ongoing - 1
        return found if alone else dataclasses.replace(found, detections=lowered(found.detections))


def lowered(found: Detections) -> Detections:
    """Scores a thousandth lower, which the owning case would let pass."""
    return dataclasses.replace(found, scores=found.scores * np.float32(0.999))


def build(args: dict[str, Any]) -> Application:
    """As deployments.app:build, with the detector that `args` names as `fault`."""
    fault = {"caching": Caching, "remembering": Remembering, "distracted": Distracted}
    detector = fault[args.pop("fault")]
    deployment = serve.deployment(
        name=Detector.__name__, max_ongoing_requests=4, ray_actor_options={"num_cpus": 1}
    )
    return deployment(detector).bind(parse(ModelArgs, args))


@contextmanager
def tampering_proxy(url: str, tamper: Tamper) -> Iterator[str]:
    """A reverse proxy of the application at `url` that passes each /v1/infer answer through
    `tamper`; yields its own URL."""
    counted: dict[str, int] = {}
    client = httpx.AsyncClient(base_url=url, timeout=60, trust_env=False)

    async def forward(request: Request) -> Response:
        sent = request.headers.get("x-request-id")
        headers = {"x-request-id": sent} if sent else {}
        agent = request.headers.get("user-agent", "").partition("/")[0]
        number = counted[agent] = counted.get(agent, -1) + 1
        answer = await client.post(request.url.path, content=await request.body(), headers=headers)
        status, body = tamper(agent, number, answer.status_code, answer.content)
        return Response(body, status, media_type="application/json")

    async def passed_on(request: Request) -> Response:
        answer = await client.get(request.url.path)
        return Response(answer.content, answer.status_code, media_type="application/json")

    started = threading.Event()

    @asynccontextmanager
    async def announce(app: Starlette) -> AsyncIterator[None]:
        started.set()
        yield

    routes = [
        Route("/v1/infer", forward, methods=["POST"]),
        Route("/v1/models", passed_on, methods=["GET"]),
        Route("/v1/metadata", passed_on, methods=["GET"]),
    ]
    app = Starlette(routes=routes, lifespan=announce)
    listening = socket.create_server(("127.0.0.1", 0))  # connections wait until uvicorn accepts
    config = uvicorn.Config(app, log_level="error", timeout_keep_alive=3600)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    assert started.wait(30)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
