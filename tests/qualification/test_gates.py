"""Gates: each passes on good evidence, fails on each kind of bad, and states what it measured."""

from typing import Any

import numpy as np
import pytest

from deployments import wire
from models.catalogue import Gates
from models.criteria import MatchedCriteria, RankedCriteria
from models.detections import Detections
from qualification import gates
from qualification.aiperf import AIPerfEvidence, AIPerfRow
from qualification.evidence import Seen
from qualification.gates import Gate, HalfCase
from qualification.mean_ap import MeanAP

CRITERIA = RankedCriteria(score=0.005, side_px=1.0)
LABELS = ["cat", "dog"]
DIGEST = "d" * 64


def seen(image: str = "a.jpg", shift: float = 0, score: float = 0.75, dogs: int = 1) -> Seen:
    """A cat, and some dogs beside it."""
    boxes = [[10, 10, 30 + shift, 30], *([40, 10, 70, 60] for _ in range(dogs))]
    found = Detections(
        np.array(boxes, np.float32),
        np.array([score, *(0.5 for _ in range(dogs))], np.float32),
        np.array([0, *(1 for _ in range(dogs))], np.int32),
        height=80,
        width=100,
    )
    return Seen(image, found, ["cat", *("dog" for _ in range(dogs))])


def nothing(image: str = "a.jpg") -> Seen:
    empty = np.empty(0, np.float32)
    return Seen(image, Detections(empty.reshape(0, 4), empty, empty.astype(np.int32), 80, 100), [])


def answer(one: Seen) -> bytes:
    return wire.response("m", [(one.detections, one.labels)], 0.1)


# --- bundle


@pytest.mark.parametrize(
    ("found", "problem", "passed", "detail"),
    [
        pytest.param(DIGEST, None, True, "", id="the served one"),
        pytest.param("e" * 64, None, False, "another bundle lies in its folder", id="another"),
        pytest.param(None, "engine.onnx was changed", False, "engine.onnx was", id="does not open"),
        pytest.param(DIGEST, "engine.onnx was changed", False, "engine.onnx was", id="a problem"),
        pytest.param(None, None, False, "another bundle", id="nothing found"),
    ],
)
def test_bundle(found: str | None, problem: str | None, passed: bool, detail: str) -> None:
    gate = gates.bundle("bundle-after", DIGEST, found, problem)
    assert (gate.name, gate.passed) == ("bundle-after", passed)
    assert gate.measured == {"served": DIGEST, "on_disk": found}
    assert gate.detail.startswith(detail)


def test_bundle_fails_where_no_bundle_is_served_and_none_is_found() -> None:
    assert not gates.bundle("bundle", None, None, None).passed


# --- owning case


def owning_case(native: list[Seen], reference: list[Seen], labels: list[str] = LABELS) -> Gate:
    return gates.owning_case(CRITERIA, native, labels, reference, LABELS)


def test_owning_case_passes_and_states_the_worst_of_all_images() -> None:
    native = [seen("a.jpg", shift=0.25), seen("b.jpg", score=0.7525), nothing("c.jpg")]
    gate = owning_case(native, [seen("a.jpg"), seen("b.jpg"), nothing("c.jpg")])
    assert gate.passed
    assert gate.measured == {
        "images": 3,
        "boxes": 4,
        "failed_images": 0,
        "side_px": 0.25,
        "score": pytest.approx(0.0025, abs=1e-7),
    }
    assert gate.needed == "on every image the same classes and count, score < 0.005, side_px < 1"


@pytest.mark.parametrize(
    ("native", "labels", "detail"),
    [
        pytest.param(seen(dogs=0), LABELS, "a.jpg: 1 boxes, the reference has 2", id="count"),
        pytest.param(seen(score=0.76), LABELS, "a.jpg: rank 0: no cat within 0.005", id="score"),
        pytest.param(seen(shift=1.5), LABELS, "a.jpg: a box side differs by 1.500", id="side"),
        pytest.param(seen(), ["dog", "cat"], "a.jpg: rank 0: no cat", id="labels permuted"),
        pytest.param(nothing(), LABELS, "a.jpg: 0 boxes, the reference has 2", id="nothing"),
    ],
)
def test_owning_case_fails_on_one_bad_image_among_good_ones(
    native: Seen, labels: list[str], detail: str
) -> None:
    others = [nothing("b.jpg"), nothing("c.jpg")]
    gate = owning_case([native, *others], [seen(), *others], labels)
    assert not gate.passed
    assert gate.measured["failed_images"] == 1
    assert gate.detail.startswith(detail)


def test_owning_case_names_three_failures_and_counts_all() -> None:
    names = ["a", "b", "c", "d"]
    gate = owning_case([seen(name, dogs=0) for name in names], [seen(name) for name in names])
    assert gate.measured["failed_images"] == 4
    assert [part[0] for part in gate.detail.split("; ")] == ["a", "b", "c"]


def test_owning_case_of_no_image_fails() -> None:
    assert not owning_case([], []).passed


@pytest.mark.parametrize("shift", [0.0, 0.00390625, 0.4375, 0.4404296875, 0.96875])
def test_owning_case_would_have_passed_with_the_bound_it_prints(shift: float) -> None:
    native, reference = [seen(shift=shift)], [seen()]
    detail = owning_case(native, reference).detail
    assert detail.startswith("passes at any bound of score above 0, side_px above ")
    bound = float(detail.rpartition(" ")[2])

    def passes(side_px: float) -> bool:
        criteria = RankedCriteria(score=0.005, side_px=side_px)
        return gates.owning_case(criteria, native, LABELS, reference, LABELS).passed

    assert passes(float(np.nextafter(bound, 2)))
    assert bound <= shift * 1.1  # two digits
    if shift:
        assert not passes(shift)  # exclusive


def half_case(images: int, differing: int, reference_score: float) -> Gate:
    """`images` images with a cat at 0.251; the last `differing` of the references have it at
    another score. The threshold is 0.25."""
    names = [f"{index:02}.jpg" for index in range(images)]
    scores = [0.251] * (images - differing) + [reference_score] * differing

    def at(threshold: float, values: list[float]) -> list[Seen]:
        return [
            Seen(each.image, each.detections.only(each.detections.scores >= threshold), each.labels)
            for each in (seen(name, score=v, dogs=0) for name, v in zip(names, values, strict=True))
        ]

    ours = [0.251] * images
    below = HalfCase(at(0.245, ours), at(0.245, scores), 0.25)
    return gates.owning_case(CRITERIA, at(0.25, ours), LABELS, at(0.25, scores), LABELS, below)


def test_in_fp16_a_detection_that_the_threshold_divides_is_stated_and_no_difference() -> None:
    gate = half_case(images=3, differing=2, reference_score=0.248)
    assert gate.passed
    assert gate.measured["divided"] == 2
    assert gate.measured["images"] == 3


def test_in_fp16_a_detection_without_a_partner_below_the_threshold_fails() -> None:
    gate = half_case(images=3, differing=1, reference_score=0.2)
    assert not gate.passed
    assert gate.detail == "02.jpg: 1 boxes, the reference has 0"


def test_in_fp16_the_first_eight_images_are_judged_and_the_others_stated() -> None:
    gate = half_case(images=12, differing=3, reference_score=0.2)
    assert gate.passed
    assert gate.measured["images"] == 8
    assert gate.measured["other_images"] == 4
    assert gate.measured["other_images_that_differ"] == 3
    assert not half_case(images=8, differing=1, reference_score=0.2).passed


def test_of_an_overlap_the_lowest_is_the_worst() -> None:
    criteria = MatchedCriteria(iou=0.5, score=0.05)
    native = [seen("a.jpg", shift=4), seen("b.jpg", shift=1), nothing("c.jpg")]
    reference = [seen("a.jpg"), seen("b.jpg"), nothing("c.jpg")]
    gate = gates.owning_case(criteria, native, LABELS, reference, LABELS)
    assert gate.measured["iou"] == pytest.approx(20 / 24)
    assert "iou >= 0.5, score <= 0.05" in gate.needed
    assert gate.detail == "passes at any bound of iou down to 0.8333, score above 0"


# --- dataset


def mean(map_: float, map50: float = 0.5) -> MeanAP:
    return MeanAP(
        map=map_, map50=map50, reference_system_map=0, reference_system_map50=0, scored_boxes=7
    )


def dataset(native: MeanAP, reference: MeanAP, drop: float = 0.25, floor: float = 0.25):
    judged = gates.dataset(native, reference, Gates(map_drop=drop, reference_floor=floor))
    assert [gate.name for gate in judged] == ["reference-floor", "map", "map50"]
    return {gate.name: gate for gate in judged}


# quarters, eighths and so on have no rounding, so that "exactly" is exact
@pytest.mark.parametrize(
    ("native", "reference", "failed"),
    [
        pytest.param(mean(0.5), mean(0.5), set(), id="the same"),
        pytest.param(mean(0.75), mean(0.5), set(), id="better than the reference"),
        pytest.param(mean(0.25), mean(0.5), set(), id="a drop of exactly the bound"),
        pytest.param(mean(0.2499), mean(0.5), {"map"}, id="a drop above the bound"),
        pytest.param(mean(0.5, 0.25), mean(0.5, 0.5), set(), id="map50 at exactly the bound"),
        pytest.param(mean(0.5, 0.2499), mean(0.5, 0.5), {"map50"}, id="map50 above the bound"),
        pytest.param(mean(0.25), mean(0.25), set(), id="a reference at exactly the floor"),
        pytest.param(mean(0.25), mean(0.2499), {"reference-floor"}, id="below the floor"),
        pytest.param(mean(0, 0), mean(0, 0), {"reference-floor"}, id="zero against zero"),
        pytest.param(mean(0, 0), mean(0.5, 0.5), {"map", "map50"}, id="zero against good"),
        pytest.param(
            mean(0.5), mean(float("nan")), {"reference-floor", "map"}, id="no number at all"
        ),
    ],
)
def test_dataset(native: MeanAP, reference: MeanAP, failed: set[str]) -> None:
    judged = dataset(native, reference)
    assert {name for name, gate in judged.items() if not gate.passed} == failed


def test_dataset_states_both_figures_the_drop_and_what_was_needed() -> None:
    judged = dataset(mean(0.375, 0.5), mean(0.5, 0.25), drop=0.02, floor=0.3)
    assert judged["reference-floor"].measured == {"reference_map": 0.5, "scored_boxes": 7}
    assert judged["reference-floor"].needed == "reference mAP >= 0.3 (pycocotools)"
    bounds = Gates(map_drop=0.02, reference_floor=0.3, published_map=0.54)
    floor, *_ = gates.dataset(mean(0.5), mean(0.5), bounds)
    assert floor.measured["published_map"] == 0.54  # beside the reference's, and no bound
    assert floor.passed
    assert judged["map"].measured == {"native": 0.375, "reference": 0.5, "drop": 0.125}
    assert judged["map"].needed == "drop <= 0.02 (pycocotools)"
    assert judged["map50"].measured == {"native": 0.5, "reference": 0.25, "drop": -0.25}


@pytest.mark.parametrize("value", [0.30004, 0.29996, 0.3, 0.5, 0.123456])
def test_the_floor_it_prints_would_have_passed(value: float) -> None:
    detail = dataset(mean(value), mean(value))["reference-floor"].detail
    floor = float(detail.removeprefix("passes up to a floor of "))
    assert dataset(mean(value), mean(value), floor=floor)["reference-floor"].passed
    assert value - floor <= 0.0001


@pytest.mark.parametrize("drop", [0.02004, 0.01996, 0.02, 0.25, 0.000001, 0.0, -0.1])
def test_the_drop_it_prints_would_have_passed(drop: float) -> None:
    native, reference = mean(0.5 - drop), mean(0.5)
    detail = dataset(native, reference)["map"].detail
    bound = float(detail.removeprefix("passes down to a bound of "))
    assert dataset(native, reference, drop=bound)["map"].passed
    assert 0 <= bound - max(drop, 0) <= 0.0001 + 1e-12


# --- identity


def test_identity_passes_on_the_very_boxes() -> None:
    native = [seen("a.jpg"), seen("b.jpg", dogs=3), nothing("c.jpg")]
    gate = gates.identity(native, [(200, answer(one)) for one in native])
    assert gate.passed
    assert gate.measured == {"images": 3, "identical": 3}
    assert gate.detail == ""


LAST_BIT = float(np.nextafter(np.float32(0.75), np.float32(1)))


@pytest.mark.parametrize(
    ("response", "detail"),
    [
        pytest.param((200, answer(seen(dogs=0))), "1 boxes, native has 2", id="a box dropped"),
        pytest.param((200, answer(seen(score=LAST_BIT))), "native has", id="a score's last bit"),
        pytest.param((200, answer(seen(shift=0.0001))), "native has", id="a side"),
        pytest.param((200, answer(nothing())), "0 boxes, native has 2", id="no box"),
        pytest.param(
            (200, answer(Seen("a.jpg", seen().detections, ["cat", "bird"]))),
            "native has",
            id="another label",
        ),
        pytest.param((500, answer(seen())), "status 500", id="a status"),
        pytest.param((200, b'{"data": []}'), "list of 1 items", id="no item"),
        pytest.param((200, b'{"data": [{}]}'), "has not the index 0", id="an empty item"),
        pytest.param((200, b""), "not a JSON object", id="no body"),
    ],
)
def test_identity_fails_on_one_other_answer(response: tuple[int, bytes], detail: str) -> None:
    native = [seen("a.jpg"), seen("b.jpg")]
    gate = gates.identity(native, [response, (200, answer(native[1]))])
    assert not gate.passed
    assert gate.measured == {"images": 2, "identical": 1}
    assert gate.detail.startswith("a.jpg: ")
    assert detail in gate.detail


def test_identity_of_answers_in_another_order_fails() -> None:
    native = [seen("a.jpg"), seen("b.jpg", dogs=2)]
    assert not gates.identity(native, [(200, answer(one)) for one in native[::-1]]).passed


def test_identity_of_no_image_fails() -> None:
    assert not gates.identity([], []).passed


# --- AIPerf


NATIVE = [seen("a.jpg"), seen("b.jpg", dogs=2), nothing("c.jpg")]


def row(place: int, **changes: Any) -> AIPerfRow:
    one = NATIVE[place]
    good = {
        "request_id": f"id-{place}",
        "phase": "profiling",
        "image": one.image,
        "status": 200,
        "body": answer(one).decode(),
        "latency_ms": 9.0,
        "start_ns": place,
        "end_ns": place + 1,
    }
    return AIPerfRow.model_validate(good | changes)


def record(**changes: Any) -> dict[str, Any]:
    return {"status": 200, "bundle_digest": DIGEST} | changes


def evidence(
    rows: list[AIPerfRow] | None = None,
    records: dict[str, list[dict[str, Any]]] | None = None,
    problems: list[str] | None = None,
) -> AIPerfEvidence:
    good = {f"id-{place}": [record()] for place in range(3)}
    return AIPerfEvidence(
        command=["aiperf"],
        expected=3,
        rows=[row(0), row(1), row(2)] if rows is None else rows,
        records=good | (records or {}),
        problems=problems or [],
    )


def aiperf(judged: AIPerfEvidence) -> dict[str, Gate]:
    return {gate.name: gate for gate in gates.aiperf(NATIVE, judged, DIGEST)}


def test_aiperf_passes_and_states_its_counts() -> None:
    judged = aiperf(evidence())
    assert all(gate.passed for gate in judged.values())
    assert {name: gate.measured for name, gate in judged.items()} == {
        "aiperf-errors": {"requests": 3, "errors": 0},
        "aiperf-responses": {"verified": 3, "responses": 3},
        "aiperf-joins": {"missing_or_double": 0},
    }
    assert judged["aiperf-errors"].needed == "3 requests, 0 errors"


ERRORS, RESPONSES, JOINS = "aiperf-errors", "aiperf-responses", "aiperf-joins"


@pytest.mark.parametrize(
    ("bad", "failed", "detail"),
    [
        pytest.param(
            evidence(problems=["AIPerf says the run was cancelled"]),
            {ERRORS},
            "AIPerf says the run was cancelled",
            id="AIPerf's own complaint",
        ),
        pytest.param(
            evidence(
                [row(0, status=429, body="{}"), row(1), row(2)], {"id-0": [record(status=429)]}
            ),
            {ERRORS, RESPONSES},
            "request id-0: status 429",
            id="a status on both sides",
        ),
        pytest.param(
            evidence([row(0, status=0, body=""), row(1), row(2)]),
            {ERRORS, RESPONSES, JOINS},
            "request id-0: status 0",
            id="an answer that never came",
        ),
        pytest.param(evidence([row(0), row(1)]), {ERRORS, RESPONSES, JOINS}, "", id="one missing"),
        pytest.param(evidence([]), {ERRORS, RESPONSES, JOINS}, "", id="all missing"),
        pytest.param(
            evidence([row(0, body=row(1).body), row(1), row(2)]),
            {RESPONSES},
            "request id-0 (a.jpg): 3 boxes, native has 2",
            id="another image's answer",
        ),
        pytest.param(
            evidence([row(0), row(1), row(2, body='{"data": [{}]}')]),
            {RESPONSES},
            "request id-2 (c.jpg): data[0] has not the index 0",
            id="what AIPerf takes for a success",
        ),
        pytest.param(
            evidence([row(0), row(1), row(2, body='{"data": []}')]),
            {RESPONSES},
            "request id-2 (c.jpg): `data` must be a list of 1",
            id="no item",
        ),
        pytest.param(
            evidence([row(0, image=None), row(1), row(2)]),
            {RESPONSES},
            "request id-0 (None): its image is none of the dataset's",
            id="an image that was re-encoded",
        ),
        pytest.param(
            evidence(records={"id-1": []}), {JOINS}, "request id-1 has 0 server", id="no record"
        ),
        pytest.param(
            evidence(records={"id-1": [record(), record()]}),
            {JOINS},
            "request id-1 has 2 server records",
            id="two records",
        ),
        pytest.param(
            evidence(records={"id-1": [record(status=500)]}),
            {JOINS},
            "request id-1: the server recorded 500",
            id="a record of another status",
        ),
        pytest.param(
            evidence(records={"id-1": [record(bundle_digest="e" * 64)]}),
            {JOINS},
            "request id-1 was answered by another bundle",
            id="another bundle",
        ),
        pytest.param(
            evidence(records={"id-1": [{"status": 200}]}),
            {JOINS},
            "request id-1 was answered by another bundle",
            id="a record without a bundle",
        ),
        pytest.param(
            evidence([row(0), row(1, request_id="id-0"), row(2)]),
            {JOINS},
            "request id id-0 was sent 2 times",
            id="one id for two requests",
        ),
        pytest.param(
            evidence([row(0), row(1), row(2), row(2, request_id="id-3")], {"id-3": [record()]}),
            {RESPONSES, JOINS},
            "",
            id="one request too many",
        ),
    ],
)
def test_aiperf_fails_on_each_kind_of_bad_run(
    bad: AIPerfEvidence, failed: set[str], detail: str
) -> None:
    judged = aiperf(bad)
    assert {name for name, gate in judged.items() if not gate.passed} == failed
    first = next(gate for gate in judged.values() if not gate.passed)
    assert first.detail.startswith(detail)


def test_aiperf_counts_what_is_missing() -> None:
    judged = aiperf(evidence([row(0), row(1, body="oops")], {"id-0": []}))
    assert judged[ERRORS].measured == {"requests": 2, "errors": 1}
    assert judged[RESPONSES].measured == {"verified": 1, "responses": 3}
    assert judged[JOINS].measured == {"missing_or_double": 2}


def test_the_gates_of_a_point_are_named_with_it() -> None:
    judged = gates.aiperf(NATIVE, evidence(rows=[]), DIGEST, "aiperf-c8")
    assert [gate.name for gate in judged] == [
        "aiperf-c8-errors",
        "aiperf-c8-responses",
        "aiperf-c8-joins",
    ]
    assert {gate.detail for gate in judged} == {"3 requests are not in AIPerf's records"}
