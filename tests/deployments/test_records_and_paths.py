"""Request records, and every path of the live application but /v1/infer."""

import uuid

import pytest

from deployments import records
from qualification.client import data_url
from tests.conftest import BOUND
from tests.deployments.attacker import (
    MIB,
    MODEL,
    RECORD_KEYS,
    SERVED,
    Server,
    of,
    request,
)

pytestmark = pytest.mark.slow


def test_record_of_an_answer_is_complete(server: Server, picture: bytes) -> None:
    request_id = f"record-{uuid.uuid4()}"
    body = of(picture, picture)
    answer = server.post(body, **{"x-request-id": request_id})
    assert answer.json()["usage"] == {"images_size_mb": 2 * len(picture) / MIB}
    record = server.record(request_id)
    assert set(record) == RECORD_KEYS - {"error"}
    assert record["status"] == 200
    assert record["model"] == MODEL
    assert (record["images"], record["image_bytes"]) == (2, 2 * len(picture))
    assert record["body_bytes"] == len(body)
    assert len(record["bundle_digest"]) == 64
    for task in record["tasks"]:
        wall = task["task_call_wall_ms"]
        assert 0 < sum(task["stages_ms"].values()) <= wall <= record["handler_ms"]
        assert task["queue_ms"] >= 0


def test_no_request_has_two_records(server: Server, picture: bytes) -> None:
    """None of all that this server was sent so far; a late second record would show here."""
    server.accepts(of(picture))
    server.refuses(b"", 400, "malformed_request")
    ids = [record["id"] for record in records.read(server.started)]
    given = [one for one in ids if one.startswith(("bad-", "good-", "large-", "half-", "gone-"))]
    assert len(given) >= 2
    assert len(given) == len(set(given))


def test_models_lists_what_is_served(server: Server) -> None:
    document = server.http.get("/v1/models").json()
    assert document["object"] == "list"
    entries = {entry["id"]: entry for entry in document["data"]}
    assert set(SERVED) <= set(entries)
    for name, family in zip(SERVED, ("yolov8", "yolox"), strict=True):
        entry = entries[name]
        assert entry["object"] == "model"
        assert entry["owned_by"] == "detserve"
        assert entry["ready"] is True
        assert entry["root"] == entry["checkpoint"] == name
        assert entry["family"] == family
        assert len(entry["labels"]) == 80
        assert entry["labels"][0] == "person"
        assert len(bytes.fromhex(entry["bundle_digest"])) == 32
        assert entry["engine"] == "onnxruntime"
        assert entry["precision"] == "fp32"
        assert isinstance(entry["qualification"]["status"], str)


def test_metadata_has_nims_keys_and_the_limits(server: Server) -> None:
    document = server.http.get("/v1/metadata").json()
    assert set(document) == {"version", "modelInfo", "assetInfo", "licenseInfo", "limits"}
    assert set(SERVED) <= {info["modelUrl"] for info in document["modelInfo"]}
    assert set(SERVED) <= {info["shortName"].split(":")[0] for info in document["modelInfo"]}
    assert set(SERVED) <= set(document["licenseInfo"])
    assert document["assetInfo"] == []
    assert document["limits"]["max_images"] == 32


@pytest.mark.parametrize("named", [None, "another"])
def test_a_bound_path_is_its_models(server: Server, picture: bytes, named: str | None) -> None:
    """NIM 2.0's request has no model in its body; one that is named there does not count."""
    ((path, model),) = BOUND.items()
    request_id = f"bound-{uuid.uuid4()}"
    body = request(data_url(picture), model=named)
    answer = server.http.post(path, content=body, headers={"x-request-id": request_id})
    assert answer.json() == server.post(request(data_url(picture), model=model)).json()
    assert server.record(request_id)["model"] == model


@pytest.mark.parametrize(("path", "word"), [("live", "live"), ("ready", "ready")])
def test_health_is_nims(server: Server, path: str, word: str) -> None:
    answer = server.http.get(f"/v1/health/{path}")
    assert answer.status_code == 200
    assert answer.json() == {"object": "health.response", "message": word, word: True}
    assert len(answer.headers.get_list("x-request-id")) == 1
