"""Evidence: what the stages of a campaign saw, in a form that is saved and can be re-judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from models.detections import Detections

# A box as the wire carries it: label, class id, then x_min, y_min, x_max, y_max and confidence.
WireBox = tuple[str, int, float, float, float, float, float]

COORDINATES = ("x_min", "y_min", "x_max", "y_max")


class InvalidResponse(ValueError):
    """A response that is not what docs/wire.md describes; the sentence says why."""


@dataclass(frozen=True)
class Seen:
    """The detections of one image, with the label of each box."""

    image: str
    detections: Detections
    labels: list[str]

    @classmethod
    def of(cls, image: str, detections: Detections, labels: Sequence[str]) -> "Seen":
        """labels: by class id."""
        return cls(image, detections, [labels[index] for index in detections.class_ids])

    def to_json(self) -> dict[str, Any]:
        """Floats are float32 written as doubles, so that reading gives the same bits."""
        found = self.detections
        return {
            "image": self.image,
            "height": found.height,
            "width": found.width,
            "boxes": found.boxes.tolist(),
            "scores": found.scores.tolist(),
            "class_ids": found.class_ids.tolist(),
            "labels": self.labels,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Seen":
        return cls(
            value["image"],
            Detections(
                np.array(value["boxes"], np.float32).reshape(-1, 4),
                np.array(value["scores"], np.float32),
                np.array(value["class_ids"], np.int32),
                value["height"],
                value["width"],
            ),
            value["labels"],
        )

    @classmethod
    def from_wire(cls, image: str, boxes: Sequence[WireBox], height: int, width: int) -> "Seen":
        """An answer's boxes in pixels of an image of that size."""
        ordered = sorted(boxes, key=lambda box: -box[6])
        corners = np.array([box[2:6] for box in ordered], np.float32).reshape(-1, 4)
        return cls(
            image,
            Detections(
                corners * np.array([width, height] * 2, np.float32),
                np.array([box[6] for box in ordered], np.float32),
                np.array([box[1] for box in ordered], np.int32),
                height,
                width,
            ),
            [box[0] for box in ordered],
        )

    def wire_boxes(self) -> list[WireBox]:
        """What a response about this image must hold, in canonical order."""
        found = self.detections
        return canonical(
            (label, int(class_id), *map(float, box), float(score))
            for label, class_id, box, score in zip(
                self.labels, found.class_ids, found.boxes_norm(), found.scores, strict=True
            )
        )


def canonical(boxes: Any) -> list[WireBox]:
    """Boxes as a sorted list: two answers are the same when these are equal. The order of
    labels in an object means nothing, and near-equal scores may stand in either order."""
    return sorted(boxes)


def parse_response(body: bytes, images: int = 1) -> list[list[WireBox]]:
    """A response's boxes, in canonical order, for each of the `images` that were sent.

    Numbers are rounded to float32, the wire's precision. Everything is checked, because AIPerf
    takes `{"data": [{}]}` for a success.

    Raises:
        InvalidResponse: the sentence says what is wrong.
    """
    try:
        document = orjson.loads(body)
        data = document["data"]
    except (orjson.JSONDecodeError, TypeError, KeyError) as error:
        raise InvalidResponse("not a JSON object with `data`") from error
    if not isinstance(data, list) or len(data) != images:
        raise InvalidResponse(f"`data` must be a list of {images} items, one for each image")
    answers = []
    for index, item in enumerate(data):
        found = item.get("index") if isinstance(item, dict) else None
        if type(found) is not int or found != index:  # false is an int that equals 0
            raise InvalidResponse(f"data[{index}] has not the index {index}")
        grouped = item.get("bounding_boxes")
        if not isinstance(grouped, dict):
            raise InvalidResponse(f"data[{index}] has no `bounding_boxes` object")
        if not all(isinstance(boxes, list) for boxes in grouped.values()):
            raise InvalidResponse(f"data[{index}]: each label must have a list of boxes")
        answers.append(
            canonical(_box(label, box) for label, boxes in grouped.items() for box in boxes)
        )
    return answers


def _box(label: str, box: Any) -> WireBox:
    try:
        *numbers, class_id = (box[key] for key in (*COORDINATES, "confidence", "class_id"))
    except (TypeError, KeyError) as error:
        raise InvalidResponse(f"a box of {label} is not complete: {error!r}") from error
    if not {type(number) for number in numbers} <= {int, float} or type(class_id) is not int:
        raise InvalidResponse(f"a box of {label} has a value of another type: {box}")
    x_min, y_min, x_max, y_max, confidence = numbers
    if not (0 <= x_min <= x_max <= 1 and 0 <= y_min <= y_max <= 1 and 0 <= confidence <= 1):
        raise InvalidResponse(f"a box of {label} is not inside the image: {numbers}")
    x_min, y_min, x_max, y_max, confidence = (float(np.float32(number)) for number in numbers)
    return (label, class_id, x_min, y_min, x_max, y_max, confidence)


def difference(expected: Sequence[WireBox], found: Sequence[WireBox]) -> str | None:
    """None when the two answers are the same to the last bit, else a sentence about how not."""
    if list(expected) == list(found):
        return None
    if len(expected) != len(found):
        return f"{len(found)} boxes, native has {len(expected)}"
    pairs = zip(expected, found, strict=True)
    mine, theirs = next(pair for pair in pairs if pair[0] != pair[1])
    return f"native has {mine}, the response {theirs}"
