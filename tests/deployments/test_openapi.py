"""/openapi.json and the running server hold each other to their word, by schemathesis."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings, strategies
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from deployments import openapi
from deployments.config import OWN_PATHS, IngressArgs
from tests.conftest import BOUND, Application

pytestmark = pytest.mark.slow


def test_the_server_is_as_its_document_says(application: Application) -> None:
    api = schemathesis.openapi.from_url(f"{application.url}/openapi.json")
    operations = [found.ok() for found in api.get_all_operations()]
    assert {operation.path for operation in operations} | {"/openapi.json"} == set(
        api.raw_schema["paths"]
    )  # it leaves the document's own path out
    for operation in operations:
        hold(operation)


def hold(operation: Any) -> None:
    # a URL of the right form is rarely an image, and the name of a model is the server's
    excluded = [positive_data_acceptance] if operation.method == "post" else []

    @settings(
        max_examples=50,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategies.one_of(*(operation.as_strategy(mode) for mode in GenerationMode)))
    def check(case: Any) -> None:
        case.call_and_validate(excluded_checks=excluded)

    check()


def test_every_path_is_in_the_document(http: httpx.Client) -> None:
    listed = http.get("/no-such-path").json()["error"]["message"].partition("there are ")[2]
    assert set(http.get("/openapi.json").json()["paths"]) == set(listed.split(", "))
    own = {f"/v1/{name}" for name in OWN_PATHS} | set(BOUND)
    assert own <= set(listed.split(", "))
    assert set(listed.split(", ")) - own == {
        "/v1/health/live",
        "/v1/health/ready",
        "/openapi.json",
    }


def test_a_path_of_a_model_is_described() -> None:
    limits = IngressArgs(paths={"/v1/page-elements": "layout"})
    operation = openapi.document("1", limits)["paths"]["/v1/page-elements"]["post"]
    assert operation["summary"] == "Detect objects with layout"
    assert operation["operationId"] == "v1_page-elements"
