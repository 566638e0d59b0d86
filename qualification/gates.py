"""Gates: pure functions from evidence to a verdict. Each says what it measured, what it needed,
and the smallest bound that would have passed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from pydantic import BaseModel

from models.catalogue import Gates
from models.criteria import Comparison, Criteria, without_divided
from qualification.aiperf import AIPerfEvidence
from qualification.evidence import (
    InvalidResponse,
    Seen,
    WireBox,
    difference,
    parse_response,
)
from qualification.mean_ap import MeanAP


class Gate(BaseModel):
    """One verdict."""

    name: str
    passed: bool
    measured: dict[str, float | int | str | bool | None]
    needed: str
    detail: str  # what went wrong, or the smallest bound that would have passed


def bundle(name: str, expected: str | None, found: str | None, problem: str | None) -> Gate:
    """The files on disk are the bundle that is served (`expected`), and verify."""
    passed = problem is None and found is not None and found == expected
    return Gate(
        name=name,
        passed=passed,
        measured={"served": expected, "on_disk": found},
        needed="the served digest, over unchanged files",
        detail=problem or ("" if passed else "another bundle lies in its folder"),
    )


HALF_IMAGES = 8  # of the owning case of an FP16 bundle (docs/decisions/half-precision.md)


@dataclass(frozen=True)
class HalfCase:
    """What the owning case of an FP16 bundle is judged by besides.

    native, reference: each image's detections down to `threshold` less the criteria's bound on
    scores.
    """

    native: Sequence[Seen]
    reference: Sequence[Seen]
    threshold: float


def owning_case(
    criteria: Criteria,
    native: Sequence[Seen],
    native_labels: Sequence[str],
    reference: Sequence[Seen],
    reference_labels: Sequence[str],
    half: HalfCase | None = None,
) -> Gate:
    """The family's criteria hold on every image; in FP16 on each of the first `HALF_IMAGES`, where
    a detection that the threshold divides is no difference, and the others are stated."""

    def compare(index: int) -> tuple[Comparison, int]:
        ours, theirs, divided = native[index].detections, reference[index].detections, 0
        found = criteria.compare(ours, native_labels, theirs, reference_labels)
        if found.problem is not None and half is not None:
            ours, theirs, divided = without_divided(
                criteria,
                half.native[index].detections,
                native_labels,
                half.reference[index].detections,
                reference_labels,
                half.threshold,
            )
            found = criteria.compare(ours, native_labels, theirs, reference_labels)
        return found, divided

    assert len(native) == len(reference)
    compared = [compare(index) for index in range(len(native))]
    judged = compared if half is None else compared[:HALF_IMAGES]
    worst = {name: float(name in criteria.at_least) for name in criteria.bounds()}
    for found, _ in judged:
        for name, value in found.differences.items():
            pick = min if name in criteria.at_least else max
            worst[name] = pick(worst[name], value)
    failures = [
        f"{seen.image}: {found.problem}"
        for seen, (found, _) in zip(native, judged, strict=False)
        if found.problem is not None
    ]
    measured: dict[str, float | int | str | bool | None] = {
        "images": len(judged),
        "boxes": sum(len(one.detections) for one in native[: len(judged)]),
        "failed_images": len(failures),
        **worst,
    }
    if half is not None:
        beyond = compared[HALF_IMAGES:]
        measured |= {
            "divided": sum(divided for _, divided in judged),
            "other_images": len(beyond),
            "other_images_that_differ": sum(found.problem is not None for found, _ in beyond),
        }
    return Gate(
        name="owning-case",
        passed=not failures and bool(native),
        measured=measured,
        needed=f"on every image the same classes and count, {criteria.needed()}",
        detail="; ".join(failures[:3]) or f"passes at {_smallest(criteria, worst)}",
    )


def _smallest(criteria: Criteria, worst: dict[str, float]) -> str:
    """The tightest bounds that pass, rounded to the side on which they still do."""
    parts = []
    for name, value in worst.items():
        lower = name in criteria.at_least
        towards = Context(prec=4 if lower else 2, rounding=ROUND_FLOOR if lower else ROUND_CEILING)
        bound = towards.create_decimal_from_float(value)
        parts.append(f"{name} {'down to' if lower else 'above'} {bound:g}")
    return "any bound of " + ", ".join(parts)


def dataset(native: MeanAP, reference: MeanAP, bounds: Gates) -> list[Gate]:
    """Three gates: the reference is worth comparing with, and neither mAP drops too far.

    Published figures are of other images, which no bound could allow for: they are stated beside
    the reference's for a person to compare.
    """
    stated = {"published_map": bounds.published_map, "published_map50": bounds.published_map50}
    published = {name: value for name, value in stated.items() if value is not None}
    gates = [
        Gate(
            name="reference-floor",
            passed=reference.map >= bounds.reference_floor,
            measured={
                "reference_map": reference.map,
                "scored_boxes": reference.scored_boxes,
                **published,
            },
            needed=f"reference mAP >= {bounds.reference_floor:g} (pycocotools)",
            detail=f"passes up to a floor of {_rounded(reference.map, ROUND_FLOOR)}",
        )
    ]
    for name in ("map", "map50"):
        ours, theirs = getattr(native, name), getattr(reference, name)
        drop = theirs - ours
        gates.append(
            Gate(
                name=name,
                passed=drop <= bounds.map_drop,
                measured={"native": ours, "reference": theirs, "drop": drop},
                needed=f"drop <= {bounds.map_drop:g} (pycocotools)",
                detail=f"passes down to a bound of {_rounded(max(drop, 0), ROUND_CEILING)}",
            )
        )
    return gates


def identity(native: Sequence[Seen], responses: Sequence[tuple[int, bytes]]) -> Gate:
    """Every HTTP response holds the very boxes of the native result.

    responses: (status, body), in the order of `native`.
    """
    failures = []
    for seen, (status, body) in zip(native, responses, strict=True):
        problem = answer_problem(seen, status, body)
        if problem is not None:
            failures.append(f"{seen.image}: {problem}")
    return Gate(
        name="identity",
        passed=not failures and bool(native),
        measured={"images": len(native), "identical": len(native) - len(failures)},
        needed="every image the same boxes, class ids and scores to the last bit",
        detail="; ".join(failures[:3]),
    )


def aiperf(
    native: Sequence[Seen], evidence: AIPerfEvidence, bundle_digest: str, name: str = "aiperf"
) -> list[Gate]:
    """Three gates on an AIPerf run: no errors, every response right, every join single.

    name: of the run's point, with which the gates' names begin.
    """
    problems = list(evidence.problems)
    problems += [
        f"request {row.request_id}: status {row.status}"
        for row in evidence.rows
        if row.status != 200
    ]
    by_name = {seen.image: seen for seen in native}
    sent = Counter(row.request_id for row in evidence.rows)
    wrong, joins = [], []
    for row in evidence.rows:
        seen = by_name.get(row.image or "")
        problem = (
            "its image is none of the dataset's"
            if seen is None
            else answer_problem(seen, row.status, row.body.encode())
        )
        if problem is not None:
            wrong.append(f"request {row.request_id} ({row.image}): {problem}")
        records = evidence.records.get(row.request_id, [])
        if sent[row.request_id] != 1:
            joins.append(f"request id {row.request_id} was sent {sent[row.request_id]} times")
        elif len(records) != 1:
            joins.append(f"request {row.request_id} has {len(records)} server records")
        elif records[0]["status"] != row.status:
            joins.append(f"request {row.request_id}: the server recorded {records[0]['status']}")
        elif row.status == 200 and records[0].get("bundle_digest") != bundle_digest:
            joins.append(f"request {row.request_id} was answered by another bundle")
    expected = evidence.expected
    missing = max(expected - len(evidence.rows), 0)
    absent = [f"{missing} requests are not in AIPerf's records"] if missing else []
    return [
        Gate(
            name=f"{name}-errors",
            passed=not problems and not missing,
            measured={"requests": len(evidence.rows), "errors": len(problems) + missing},
            needed=f"{expected} requests, 0 errors",
            detail="; ".join((problems + absent)[:3]),
        ),
        Gate(
            name=f"{name}-responses",
            passed=not wrong and len(evidence.rows) == expected,
            measured={"verified": len(evidence.rows) - len(wrong), "responses": expected},
            needed=f"{expected} of {expected} equal to the native result of their own image",
            detail="; ".join((wrong + absent)[:3]),
        ),
        Gate(
            name=f"{name}-joins",
            passed=not joins and len(evidence.rows) == expected,
            measured={"missing_or_double": len(joins) + missing},
            needed="each request id in exactly one server record of this bundle",
            detail="; ".join((joins + absent)[:3]),
        ),
    ]


def _rounded(value: float, towards: str) -> str:
    """Four decimals towards the side on which the bound would still have passed."""
    return str(Decimal(value).quantize(Decimal("0.0001"), rounding=towards))


def answer_problem(seen: Seen, status: int, body: bytes) -> str | None:
    """None when an answer about one image holds the very boxes of `seen`, else a sentence."""
    if status != 200:
        return f"status {status}"
    try:
        (boxes,) = parse_response(body)
    except InvalidResponse as error:
        return str(error)
    expected: list[WireBox] = seen.wire_boxes()
    return difference(expected, boxes)
