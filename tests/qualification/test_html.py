"""report.html: every row, gate, picture and curve of a run, nothing of it as markup, from no file
but itself."""

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from models.home import data
from qualification import html
from qualification.html import pictures
from qualification.html.page import worded
from qualification.results import Results
from tests.qualification import made_run
from tests.qualification.made_run import HOSTILE


class Page(HTMLParser):
    """elements: (tag, attributes, text inside), in order."""

    VOID = frozenset({"meta", "img", "br", "line", "rect", "path", "circle", "polyline"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(page)
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = (tag, dict(attrs), [])
        self.elements.append(element)
        if tag not in self.VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag
        if tag in ("td", "th", "li", "b", "span"):  # stand apart, without a space between them
            self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        for _, _, text in self._open:
            text.append(data)

    def texts(self, tag: str) -> list[str]:
        return [" ".join("".join(text).split()) for name, _, text in self.elements if name == tag]

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes, _ in self.elements if name == tag]


@pytest.fixture(scope="module", autouse=True)
def _own_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DETSERVE_DATA", str(folder / "data"))
        patch.setenv("DETSERVE_HOME", str(folder / "home"))
        yield


@pytest.fixture(scope="module")
def run(_own_data, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    """The folder of a run with its page, and its results."""
    folder = tmp_path_factory.mktemp("run") / "run-1"
    results = made_run.write(folder)
    html.write(folder, results)
    return folder, results


@pytest.fixture(scope="module")
def page(run: tuple[Path, Results]) -> Page:
    return Page((run[0] / "report.html").read_text())


@pytest.fixture
def copied(run: tuple[Path, Results], tmp_path: Path) -> Path:
    """A copy of the run to change."""
    return shutil.copytree(run[0], tmp_path / "run-1")


def test_the_verdicts_come_first_and_have_every_model(page: Page) -> None:
    assert page.texts("h1") == ["FAIL 1 of 3 models reached aiperf-qualified"]
    gone = f"gone{HOSTILE.replace('/', '')}"
    assert page.texts("h2") == [
        "Verdicts",
        "good pass",
        "bad FAIL",
        f"{gone} FAIL",
        "Environment",
        "Do it again",
    ]
    rows = page.texts("tr")
    assert rows[1] == (
        "good pass aiperf-qualified 0.3947 / 0.3951 15.8 / 16.8 60.17 it is the highest"
    )
    assert rows[2] == (
        "bad FAIL implemented not run not run not run gate owning-case: a.jpg: 1 boxes"
    )
    assert rows[3].startswith(f"{gone} FAIL implemented not run")
    targets = {attributes.get("id") for _, attributes, _ in page.elements}
    links = [str(attributes["href"]) for attributes in page.attributes("a")]
    assert {"#model-1", "#model-2", "#model-3"} <= set(links)
    assert {link[1:] for link in links} <= targets


@pytest.mark.parametrize(
    "row",
    [
        "owning-case pass need owning-case images 100 boxes 325 score 0.001235 side px 0.25 "
        "exact: it has no bound",
        "owning-case FAIL need owning-case images 100 failed images 3 "
        "a.jpg: 1 boxes | the reference has 2",
        "dataset not run an earlier gate failed",
        f"bundle FAIL a served bundle nothing {HOSTILE}",
        "task_call_wall 17.4 19.7 19.9",
        "engine 14.4 16.7 16.9",
        "1 pass 25 33.79 20.9 21.8",
        "2 pass 25 33.51 25.9 26.8",
        "16 pass 25 30.22 91.0 91.8",
        "0.5 FAIL 9 none succeeded",
    ],
)
def test_a_table_has_the_row(page: Page, row: str) -> None:
    assert row in page.texts("tr")


def test_sweeps_are_apart_by_kind_and_in_order_of_load(page: Page) -> None:
    titles = [title for title in page.texts("h3") if title.startswith("Load")]
    assert titles == ["Load, by concurrency", "Load, by requests/s"]
    loads = [row.split()[0] for row in page.texts("tr") if " pass 25 " in row]
    assert loads == ["1", "2", "16"]


@pytest.mark.parametrize(
    "text",
    [
        "python scripts/qualify.py --models good,bad",
        "python scripts/rejudge.py results/run-1 python scripts/report.py results/run-1",
        "aiperf profile --model good",
    ],
)
def test_a_command_can_be_copied(page: Page, text: str) -> None:
    assert text in page.texts("pre")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.25, "0.25"),
        ([416, 416], "416 by 416"),
        ({"onnx": "1.2", "gpu": None, "resources": {"cpus": 0.5}}, "onnx 1.2, resources cpus 0.5"),
    ],
)
def test_a_setting_in_words(value: object, words: str) -> None:
    assert worded(value) == words


@pytest.mark.parametrize(
    "sentence",
    [
        "No pictures: stage native was not run: an earlier gate failed.",
        "No precision-recall curves: stage dataset was not run: an earlier gate failed.",
        "No latencies: stage aiperf was not run: an earlier gate failed.",
        "No load sweep: the run has no sweep points.",
        f"At requests/s 0.5: aiperf-responses: 3 {HOSTILE}",
    ],
)
def test_what_was_not_run_is_said(page: Page, sentence: str) -> None:
    assert sentence in page.texts("p")


def test_pictures_show_the_worst_and_the_typical_and_say_what_is_on_them(page: Page) -> None:
    shown = {str(image["alt"]) for image in page.attributes("img")}
    missed = (
        "good on 2.jpg. Boxes: 2 native, 2 reference, 2 in the ground truth. Of the ground truth "
        "1 found and 1 missed by native, 1 extra"
    )
    assert any(alt.startswith(missed) for alt in shown)
    failing = "Native against reference: a box side differs by 9.000 px (bound 1)."
    assert any(alt.startswith("bad on ") and alt.endswith(failing) for alt in shown)
    kinds = [caption.partition(" (")[0] for caption in page.texts("figcaption")]
    assert "Furthest from the ground truth" in kinds
    assert "Native and reference differ most" in kinds
    assert "Typical" in kinds


def test_charts_are_read_out(page: Page) -> None:
    spoken = [str(svg["aria-label"]) for svg in page.attributes("svg") if svg.get("role") == "img"]
    starts = [
        "Precision over recall at IoU 0.50; average precision: native 0.",
        "Precision over recall at IoU 0.75; average precision: native 0.",
        "Latency of each request in milliseconds, logarithmic. client p50 22.45, p95 24.66;",
        "Images per second by concurrency. images/s 33.8, 33.5, 30.2",
        "Client latency by concurrency. p50 20.9, 25.9, 91.0; p95 21.8, 26.8, 91.8",
    ]
    assert len(spoken) == len(starts)
    for text, start in zip(spoken, starts, strict=True):
        assert text.startswith(start)


def test_nothing_of_a_run_becomes_markup(page: Page) -> None:
    assert not page.texts("script")
    names = {name for _, attributes, _ in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on")]
    assert sum(HOSTILE in text for text in page.texts("td")) == 2


def test_the_page_refers_to_nothing_outside_itself(run: tuple[Path, Results], page: Page) -> None:
    for tag, attributes, _ in page.elements:
        assert tag not in ("link", "iframe", "object", "base", "use")
        for name in ("src", "href", "srcset", "data", "action", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/jpeg;base64,")), value
    (style,) = page.texts("style")
    assert not re.search(r"url\(|@import", style)
    policy = page.attributes("meta")[-1]
    assert policy["content"] == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_a_page_made_again_without_the_dataset_keeps_its_pictures(
    run: tuple[Path, Results], copied: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DETSERVE_DATA", str(tmp_path / "elsewhere"))
    again = Page(html.write(copied, run[1]).read_text())
    first = Page((run[0] / "report.html").read_text())
    assert again.attributes("img") == first.attributes("img")
    assert not any(
        text.startswith("No precision-recall curves: the run") for text in again.texts("p")
    )
    for kept in copied.glob("*/report"):
        shutil.rmtree(kept)
    bare = Page(html.write(copied, run[1]).read_text())
    assert not bare.attributes("img")
    absent = "none were kept in the run folder, and the run's dataset is not on this machine"
    assert bare.texts("p").count(f"No pictures: {absent}.") == 2


def test_a_dataset_that_has_changed_is_not_taken_for_the_runs(
    run: tuple[Path, Results], copied: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(data() / "made", tmp_path / "data" / "made")
    document = tmp_path / "data" / "made" / "instances.json"
    document.write_bytes(document.read_bytes().replace(b'"area":20000', b'"area":20001'))
    monkeypatch.setenv("DETSERVE_DATA", str(tmp_path / "data"))
    for kept in copied.glob("*/report"):
        shutil.rmtree(kept)
    assert not Page(html.write(copied, run[1]).read_text()).attributes("img")


def test_pictures_are_drawn_anew_when_the_detections_are_others(
    run: tuple[Path, Results], copied: Path
) -> None:
    right = [made_run.seen(image, made_run.exact(image)) for image in made_run.OBJECTS]
    made_run.detections(copied / "good", right, right)
    again = Page(html.write(copied, run[1]).read_text())
    alts = [str(image["alt"]) for image in again.attributes("img")]
    assert not [alt for alt in alts if alt.startswith("good") and "0 missed by native" not in alt]


@pytest.mark.parametrize(("models", "count"), [(1, 6), (10, 6), (20, 3), (1000, 1)])
def test_the_pictures_of_a_page_stay_within_3_megabytes(
    copied: Path, monkeypatch: pytest.MonkeyPatch, models: int, count: int
) -> None:
    allowed = pictures.room(models)
    assert allowed.count == count
    assert allowed.bytes * allowed.count * models <= pictures.ALL_MODELS
    assert allowed.bytes <= pictures.LARGEST


def test_a_file_that_is_no_evidence_is_named(run_script, copied: Path) -> None:
    (copied / "good" / "aiperf-c2.json").write_text('{"data": {}, "gates": []}')
    done = run_script("report.py", copied)
    assert done.returncode == 2
    assert "good/aiperf-c2.json: not a stage's evidence: " in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_script_makes_the_page_again(run_script, copied: Path) -> None:
    made = (copied / "report.html").read_bytes()
    (copied / "report.html").unlink()
    done = run_script("report.py", copied)
    assert (done.returncode, done.stdout) == (0, f"{copied / 'report.html'}\n")
    assert (copied / "report.html").read_bytes() == made


def test_the_script_refuses_what_is_no_finished_run(run_script, tmp_path: Path) -> None:
    done = run_script("report.py", tmp_path)
    assert (done.returncode, done.stderr) == (2, f"report: {tmp_path}: has no results.json\n")
    (tmp_path / "results.json").write_text("{}")
    done = run_script("report.py", tmp_path)
    assert done.returncode == 2
    assert "results.json is not of this version: run: Field required" in done.stderr
