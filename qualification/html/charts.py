"""Where everything of a chart lies; `charts.html.j2` draws it as SVG.

Own SVG rather than matplotlib's: text stays text at the page's size, lines take the page's colours
in light and dark, and a chart is 3 kB instead of 30.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

# what contains what: client > handler > queue and Task call > its stages
DEPTH = {"client": 0, "handler": 1, "queue": 2, "task_call_wall": 2}
STAGE_DEPTH = 3

WIDTH = 340.0  # of every chart, in units near a phone's pixels
LEFT, RIGHT, TOP = 46.0, WIDTH - 12, 10.0
BOTTOM, HEIGHT = 190.0, 232.0
STRIP = 42.0  # height of one row of latencies


@dataclass(frozen=True)
class Tick:
    """at: along its axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Line:
    """style: a class of the page's style sheet. points: as SVG has them."""

    name: str
    style: str
    points: str
    dots: list[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """Lines over two axes. spoken: read out in place of the drawing."""

    title: str
    spoken: str
    x_name: str
    y_name: str
    x: list[Tick]
    y: list[Tick]
    lines: list[Line]


@dataclass(frozen=True)
class Strip:
    """One part's latencies: a stroke for each request, a band from p5 to p95, marks at both."""

    name: str
    depth: int
    top: float
    strokes: str
    band: tuple[float, float]
    p50: tuple[float, float]  # place and milliseconds
    p95: tuple[float, float]
    largest: float


@dataclass(frozen=True)
class Strips:
    """requests: that the client saw succeed. spoken: as a chart's."""

    requests: int
    spoken: str
    height: float
    ticks: list[Tick]
    strips: list[Strip]


def precision_recall(iou: float, curves: Mapping[str, np.ndarray]) -> Chart:
    """curves: side (`native`, `reference`) -> precision [101] over recall 0..1."""
    ticks = [0, 0.25, 0.5, 0.75, 1]
    areas = ", ".join(f"{name} {curve.mean():.3f}" for name, curve in curves.items())
    return Chart(
        title=f"At IoU {iou:.2f}",
        spoken=f"Precision over recall at IoU {iou:.2f}; average precision: {areas}",
        x_name="recall",
        y_name="precision",
        x=[Tick(_across(value), f"{value:g}") for value in ticks],
        y=[Tick(_up(value), f"{value:g}") for value in ticks],
        lines=[
            _line(
                f"{name}, AP {curve.mean():.3f}",
                name,
                [(_across(recall), _up(value)) for recall, value in _corners(curve)],
            )
            for name, curve in curves.items()
        ],
    )


def over_load(
    title: str, y_name: str, kind: str, loads: Sequence[float], lines: Mapping[str, list[float]]
) -> Chart:
    """A sweep's points, evenly spaced, since loads are mostly doubled.

    lines: name -> values; the first is drawn solid, a second dashed.
    """
    ticks = _round_ticks(max(max(values) for values in lines.values()))
    places = [_across((index + 0.5) / len(loads)) for index in range(len(loads))]
    spoken = "; ".join(
        f"{name} " + ", ".join(f"{value:.1f}" for value in values) for name, values in lines.items()
    )
    return Chart(
        title=title,
        spoken=f"{title}. {spoken}",
        x_name=kind,
        y_name=y_name,
        x=[Tick(at, f"{load:g}") for at, load in zip(places, loads, strict=True)],
        y=[Tick(_up(value / ticks[-1]), f"{value:g}") for value in ticks],
        lines=[
            _line(
                name,
                style,
                [(x, _up(value / ticks[-1])) for x, value in zip(places, values, strict=True)],
                dots=True,
            )
            for (name, values), style in zip(lines.items(), ("native", "reference"), strict=False)
        ],
    )


def latencies(parts: Mapping[str, Sequence[float]]) -> Strips:
    """parts: of `performance.series`; a logarithmic axis, for they differ a hundredfold."""
    floor = 0.01  # ms; a clock that saw no time at all has no logarithm
    values = [max(value, floor) for part in parts.values() for value in part]
    low, high = math.log10(min(values)), math.log10(max(values))
    low, high = low - 0.04 * (high - low + 0.1), high + 0.04 * (high - low + 0.1)

    def place(milliseconds: float) -> float:
        share = (math.log10(max(milliseconds, floor)) - low) / (high - low)
        return round(8 + share * (WIDTH - 16), 1)

    strips = []
    for index, (name, part) in enumerate(parts.items()):
        top = index * STRIP
        p5, p50, p95 = map(float, np.percentile(part, (5, 50, 95)))
        strokes = "".join(f"M{place(value)} {top + 18:g}v12" for value in part)
        strips.append(
            Strip(
                name=name,
                depth=DEPTH.get(name, STAGE_DEPTH),
                top=top,
                strokes=strokes,
                band=(place(p5), place(p95)),
                p50=(place(p50), p50),
                p95=(place(p95), p95),
                largest=max(part),
            )
        )
    return Strips(
        requests=len(parts["client"]),
        spoken="Latency of each request in milliseconds, logarithmic. "
        + "; ".join(f"{s.name} p50 {s.p50[1]:.2f}, p95 {s.p95[1]:.2f}" for s in strips),
        height=len(strips) * STRIP + 24,
        ticks=[Tick(place(value), f"{value:g}") for value in _decades(low, high)],
        strips=strips,
    )


def _across(share: float) -> float:
    return round(LEFT + share * (RIGHT - LEFT), 1)


def _up(share: float) -> float:
    return round(BOTTOM - share * (BOTTOM - TOP), 1)


def _line(name: str, style: str, places: Sequence[tuple[float, float]], dots: bool = False) -> Line:
    points = " ".join(f"{x:g},{y:g}" for x, y in places)
    return Line(name, style, points, list(places) if dots else [])


def _corners(curve: np.ndarray) -> list[tuple[float, float]]:
    """(recall, precision) of a curve's points, those inside level stretches left out."""
    recall = np.linspace(0, 1, len(curve))
    level = np.isclose(curve[1:-1], curve[:-2]) & np.isclose(curve[1:-1], curve[2:])
    keep = np.concatenate([[True], ~level, [True]])
    return [(float(x), float(y)) for x, y in zip(recall[keep], curve[keep], strict=True)]


def _round_ticks(largest: float) -> list[float]:
    """0 and up to five round steps that reach over `largest`."""
    if largest <= 0:
        return [0.0, 1.0]
    power = 10 ** math.floor(math.log10(largest / 4))
    step = next(power * digit for digit in (1, 2, 2.5, 5, 10) if power * digit * 5 >= largest)
    return [round(step * index, 10) for index in range(math.ceil(largest / step) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Round values between two logarithms: the powers of ten, and 3 and 0.3 where few fit."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    digits = (1,) if high - low > 2.2 else (1, 3) if high - low > 1 else (1, 2, 3, 5, 7)
    values = [digit * 10.0**power for power in powers for digit in digits]
    return [value for value in values if low <= math.log10(value) <= high]
