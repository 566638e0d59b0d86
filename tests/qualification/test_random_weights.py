"""A checkpoint of random weights goes the whole path and never gets above `implemented`."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml

from models import catalogue
from models.home import data, home
from tests.qualification import faults

pytestmark = pytest.mark.slow

NAME = "yolox-nano-random"


@pytest.fixture(scope="module")
def random_model(application, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """yolox-nano with its convolutions drawn anew, catalogued as random and served."""
    folder = tmp_path_factory.mktemp("random")
    entry = yaml.safe_load((catalogue.FOLDER / "yolox-nano.yaml").read_text())
    del entry["proved"], entry["gaps"]  # of the published weights
    (published,) = entry["source"]["files"]
    graph = onnx.load(data() / entry["source"]["folder"] / published)
    faults.random_weights(graph, spread=0.5)  # of sizes whose exponential stays finite
    onnx.save(graph, folder / published)
    digest = hashlib.sha256((folder / published).read_bytes()).hexdigest()
    source = {"type": "local", "folder": str(folder), "files": {published: digest}}
    dataset = entry["dataset"] | {"images": 4}
    entry |= {"id": NAME, "source": source, "dataset": dataset, "weights": "random"}
    (home() / "catalogue").mkdir(exist_ok=True)
    (home() / "catalogue" / f"{NAME}.yaml").write_text(yaml.safe_dump(entry))
    entries = application.deploy({NAME: {"checkpoint": NAME}})
    assert entries[NAME]["ready"], entries[NAME]
    yield entries[NAME]
    application.remove(NAME)
    (home() / "catalogue" / f"{NAME}.yaml").unlink()


@pytest.mark.parametrize(("expectation", "code"), [([], 1), (["--expect", "implemented"], 0)])
def test_a_campaign_proves_the_path_and_says_why_no_more(
    random_model, application, cluster, run_script, tmp_path: Path, expectation, code
) -> None:
    assert random_model["weights"] == "random"
    where = ["--address", cluster, "--url", application.url, "--out", tmp_path]
    done = run_script("qualify.py", "--model", NAME, *where, *expectation)
    assert done.returncode == code, done.stderr
    (row,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert (row["status"], row["passed"]) == ("implemented", code == 0)
    assert row["reason"] == "random weights prove the path and no accuracy"
    assert row["not_run"] == {"dataset": "random weights have no accuracy to measure"}
    gates = {gate["name"]: gate for gate in row["gates"]}
    assert all(gate["passed"] for gate in gates.values())
    assert gates["identity"]["measured"] == {"images": 4, "identical": 4}
    assert gates["aiperf-responses"]["measured"] == {"verified": 55, "responses": 55}
    assert row["reason"] in (tmp_path / "report.md").read_text()
    assert row["reason"] in done.stdout
