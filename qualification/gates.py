"""Gates: pure functions from evidence to a verdict. Each says what it measured, what it needed,
and the smallest bound that would have passed."""

from collections import Counter
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from pydantic import BaseModel

from models.catalogue import Gates
from models.criteria import Criteria
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


def owning_case(
    criteria: Criteria,
    native: Sequence[Seen],
    native_labels: Sequence[str],
    reference: Sequence[Seen],
    reference_labels: Sequence[str],
) -> Gate:
    """The family's criteria hold on every image."""
    worst: dict[str, float] = dict.fromkeys(criteria.bounds(), 0.0)
    failures = []
    for ours, theirs in zip(native, reference, strict=True):
        compared = criteria.compare(
            ours.detections, native_labels, theirs.detections, reference_labels
        )
        for name, value in compared.differences.items():
            worst[name] = max(worst[name], value)
        if compared.problem is not None:
            failures.append(f"{ours.image}: {compared.problem}")
    # rounded up, because rounded to nearest the bound might not have passed
    above = Context(prec=2, rounding=ROUND_CEILING)
    smallest = ", ".join(
        f"{name} {above.create_decimal_from_float(value):g}" for name, value in worst.items()
    )
    return Gate(
        name="owning-case",
        passed=not failures and bool(native),
        measured={
            "images": len(native),
            "boxes": sum(len(one.detections) for one in native),
            "failed_images": len(failures),
            **worst,
        },
        needed="on every image the same classes and count, "
        + ", ".join(f"{name} < {bound:g}" for name, bound in criteria.bounds().items()),
        detail="; ".join(failures[:3]) or f"passes at any bound above {smallest}",
    )


def dataset(native: MeanAP, reference: MeanAP, bounds: Gates) -> list[Gate]:
    """Three gates: the reference is worth comparing with, and neither mAP drops too far."""
    gates = [
        Gate(
            name="reference-floor",
            passed=reference.map >= bounds.reference_floor,
            measured={"reference_map": reference.map, "scored_boxes": reference.scored_boxes},
            needed=f"reference mAP >= {bounds.reference_floor:g}",
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
                needed=f"drop <= {bounds.map_drop:g}",
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
        problem = _answer_problem(seen, status, body)
        if problem is not None:
            failures.append(f"{seen.image}: {problem}")
    return Gate(
        name="identity",
        passed=not failures and bool(native),
        measured={"images": len(native), "identical": len(native) - len(failures)},
        needed="every image the same boxes, class ids and scores to the last bit",
        detail="; ".join(failures[:3]),
    )


def aiperf(native: Sequence[Seen], evidence: AIPerfEvidence, bundle_digest: str) -> list[Gate]:
    """Three gates on the AIPerf run: no errors, every response right, every join single."""
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
            else _answer_problem(seen, row.status, row.body.encode())
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
        elif records[0].get("bundle_digest") != bundle_digest:
            joins.append(f"request {row.request_id} was answered by another bundle")
    expected = evidence.expected
    missing = max(expected - len(evidence.rows), 0)
    return [
        Gate(
            name="aiperf-errors",
            passed=not problems and not missing,
            measured={"requests": len(evidence.rows), "errors": len(problems) + missing},
            needed=f"{expected} requests, 0 errors",
            detail="; ".join(problems[:3]),
        ),
        Gate(
            name="aiperf-responses",
            passed=not wrong and len(evidence.rows) == expected,
            measured={"verified": len(evidence.rows) - len(wrong), "responses": expected},
            needed=f"{expected} of {expected} equal to the native result of their own image",
            detail="; ".join(wrong[:3]),
        ),
        Gate(
            name="aiperf-joins",
            passed=not joins and len(evidence.rows) == expected,
            measured={"missing_or_double": len(joins) + missing},
            needed="each request id in exactly one server record of this bundle",
            detail="; ".join(joins[:3]),
        ),
    ]


def _rounded(value: float, towards: str) -> str:
    """Four decimals towards the side on which the bound would still have passed."""
    return str(Decimal(value).quantize(Decimal("0.0001"), rounding=towards))


def _answer_problem(seen: Seen, status: int, body: bytes) -> str | None:
    if status != 200:
        return f"status {status}"
    try:
        (boxes,) = parse_response(body)
    except InvalidResponse as error:
        return str(error)
    expected: list[WireBox] = seen.wire_boxes()
    return difference(expected, boxes)
