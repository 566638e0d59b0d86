"""The report: one table of verdicts, and `report.md` that explains each model's outcome."""

from collections.abc import Sequence

from qualification.gates import Gate
from qualification.results import ModelRow, Percentiles, Results, SweepPoint
from qualification.statistics import ImageDifference, Statistics

COLUMNS = (
    "model",
    "status",
    "owning case",
    "mAP native / reference",
    "mAP50 native / reference",
    "native = HTTP",
    "AIPerf verified",
    "errors",
    "missing joins",
    "client p50 / p95 ms",
    "Task p50 / p95 ms",
    "images/s",
)


SWEEP = (
    "under load",
    "verdict",
    "requests",
    "verified",
    "boxes",
    "joins",
    "mismatches",
    "errors",
    "client p50 / p95 ms",
    "Task p50 / p95 ms",
    "images/s",
)


def table_rows(results: Results) -> list[list[str]]:
    """The verdict table's cells, one row a model, in the order of `COLUMNS`."""
    return [_cells(row) for row in results.rows]


def text_table(results: Results) -> str:
    """The verdicts for a terminal: two columns for each model, since twelve do not fit."""
    blocks = []
    for row, cells in zip(results.rows, table_rows(results), strict=True):
        lines = [f"{'PASS' if row.passed else 'FAIL'}  {row.model}"]
        lines += [f"  {name:<26}{cell}" for name, cell in zip(COLUMNS[1:], cells[1:], strict=True)]
        lines += [f"  gate {gate.name} FAILED: {gate.detail}" for gate in failed(row)]
        lines += [f"  {row.reason}"] if row.reason and not failed(row) else []
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def markdown(results: Results) -> str:
    """`report.md`."""
    verdict = "every model passed" if results.passed else "NOT every model passed"
    verdict += f" (expected: {results.expected.value})"
    lines = [
        f"# Qualification {results.run}: {verdict}",
        "",
        f"Started {results.started}. Reproduce with `{results.command}`.",
        "",
        "`native` is the served engine, `reference` the published model run by other means. A "
        "model passes when the two agree within its family's bounds, when every HTTP response "
        "holds the native boxes to the last bit, and when every response to AIPerf did too. "
        "docs/results.md explains each gate.",
        "",
        _line(COLUMNS),
        _line(["---"] * len(COLUMNS)),
        *map(_line, table_rows(results)),
        "",
    ]
    for row in results.rows:
        lines += _section(row)
    lines += ["## Environment", ""]
    environment = results.environment
    lines += [
        f"- {environment.cpu}, {environment.cores} cores, {environment.memory_gib:g} GiB, "
        f"{environment.platform}",
        f"- GPUs: {', '.join(environment.gpus) or 'none'}",
        f"- Python {environment.python}; "
        + ", ".join(f"{name} {version}" for name, version in environment.packages.items()),
        f"- commit {environment.git_commit or 'unknown'}"
        + (", with uncommitted changes" if environment.git_diff_sha256 else ""),
        "",
    ]
    return "\n".join(lines)


def failed(row: ModelRow) -> list[Gate]:
    return [gate for gate in row.gates if not gate.passed]


def _cells(row: ModelRow) -> list[str]:
    gates = {gate.name: gate for gate in row.gates}

    def measured(gate: str, form: str) -> str:
        if gate not in gates:
            return "not run"
        # a stage that ended in an error has measured nothing
        return form.format(**gates[gate].measured) if gates[gate].measured else "FAIL"

    return [
        row.model,
        row.status.value,
        _verdict(gates.get("owning-case")),
        measured("map", "{native:.4f} / {reference:.4f} ") + _verdict(gates.get("map"), ""),
        measured("map50", "{native:.4f} / {reference:.4f} ") + _verdict(gates.get("map50"), ""),
        measured("identity", "{identical}/{images}"),
        measured("aiperf-responses", "{verified}/{responses}"),
        measured("aiperf-errors", "{errors}"),
        measured("aiperf-joins", "{missing_or_double}"),
        _milliseconds(row.performance.client if row.performance else None),
        _milliseconds(row.performance.task_call_wall if row.performance else None),
        f"{row.performance.images_per_s:.2f}" if row.performance else "not run",
    ]


def _sweep(point: SweepPoint) -> str:
    pace = f"{point.concurrency} at once" if point.rate is None else f"{point.rate:g} a second"
    counts = (point.requests, point.verified, point.boxes, point.joins, point.mismatches)
    found = point.performance
    return _line(
        [
            pace,
            "pass" if point.passed else "FAIL",
            *map(str, counts),
            str(point.errors),
            _milliseconds(found.client if found else None),
            _milliseconds(found.task_call_wall if found else None),
            f"{found.images_per_s:.2f}" if found else "not run",
        ]
    )


def _verdict(gate: Gate | None, absent: str = "not run") -> str:
    if gate is None:
        return absent
    return "pass" if gate.passed else "FAIL"


def _milliseconds(value: Percentiles | None) -> str:
    return f"{value.p50_ms:.1f} / {value.p95_ms:.1f}" if value else "not run"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def _section(row: ModelRow) -> list[str]:
    lines = [f"## {row.model}: {row.status.value}", ""]
    lines += [f"Not higher, because: {row.reason}.", ""] if row.reason else []
    if row.bundle_digest:
        lines += [
            f"Checkpoint `{row.checkpoint}` (family {row.family}), {row.engine} {row.precision}, "
            f"bundle `{row.bundle_digest}`.",
            "",
        ]
    if row.dataset and row.images:
        lines += [
            f"Dataset {row.dataset.name}: {row.images.count} images, digest "
            f"`{row.dataset.digest[:16]}`, {row.images.bytes_min / 1e3:.0f} to "
            f"{row.images.bytes_max / 1e3:.0f} kB (median {row.images.bytes_median / 1e3:.0f}).",
            "",
        ]
    lines += [_line(["gate", "verdict", "needed", "measured", "remark"]), _line(["---"] * 5)]
    for gate in row.gates:
        measured = ", ".join(f"{name} {short(value)}" for name, value in gate.measured.items())
        lines.append(_line([gate.name, _verdict(gate), gate.needed, measured, gate.detail]))
    lines += [_line([stage, "not run", "", "", why]) for stage, why in row.not_run.items()]
    lines.append("")
    lines += _accuracy(row)
    lines += _statistics(row.statistics) if row.statistics else []
    if row.performance:
        parts = {
            "client": row.performance.client,
            "handler": row.performance.handler,
            "queue": row.performance.queue,
            "task_call_wall": row.performance.task_call_wall,
            **{f"stage {name}": value for name, value in row.performance.stages.items()},
        }
        lines += [_line(["latency, ms", "p50", "p95"]), _line(["---"] * 3)]
        lines += [
            _line([name, f"{part.p50_ms:.2f}", f"{part.p95_ms:.2f}"])
            for name, part in parts.items()
        ]
        lines.append("")
    if row.sweep:
        lines += [_line(SWEEP), _line(["---"] * len(SWEEP)), *map(_sweep, row.sweep), ""]
    lines += [f"![detections of {row.model}]({picture})" for picture in row.pictures]
    lines.append("")
    return lines


def _accuracy(row: ModelRow) -> list[str]:
    """Both definitions of mAP, for both sides."""
    if row.native is None or row.reference is None:
        return []
    sides = (row.native, row.reference)
    figures = {
        "mAP, pycocotools (decides)": [side.map for side in sides],
        "mAP50, pycocotools (decides)": [side.map50 for side in sides],
        "mAP, the reference system's": [side.reference_system_map for side in sides],
        "mAP50, the reference system's": [side.reference_system_map50 for side in sides],
    }
    lines = [_line(["accuracy", "native", "reference"]), _line(["---"] * 3)]
    lines += [_line([name, *(f"{value:.4f}" for value in both)]) for name, both in figures.items()]
    return [*lines, ""]


def _statistics(found: Statistics) -> list[str]:
    """In a sentence each; they decide nothing."""
    lines = [
        f"- {found.near_threshold} of {found.boxes} native boxes lie nearer above the threshold "
        "than two scores may differ."
    ]
    if found.map_differences:
        gaps = {"mAP": found.map_differences.map, "mAP50": found.map_differences.map50}
        said = [
            f"{name} {gap.estimate:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
            for name, gap in gaps.items()
        ]
        lines.append(
            f"- Native less reference, 95 % intervals over the images: {', '.join(said)} (the "
            "reference system's definition)."
        )
    worst = [f"{one.image} ({_apart(one)})" for one in found.worst_images[:3]]
    lines += [f"- Furthest apart: {'; '.join(worst)}."] if worst else []
    return [*lines, ""]


def _apart(one: ImageDifference) -> str:
    by_bound = (f"{name} {short(value)}" for name, value in one.differences.items())
    return one.problem or ", ".join(by_bound)


def short(value: float | int | str | bool | None) -> str:
    """A measured value to read: four digits, a digest by its beginning."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)[:12]
