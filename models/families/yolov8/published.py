"""What an Ultralytics export says of itself: the labels in its ONNX metadata."""

import ast

import onnx

from models.errors import BundleError


def published_labels(model: onnx.ModelProto) -> list[str]:
    """Labels by class id, from the metadata entry `names`.

    The entry is the repr of a dict whose keys may stand in string order (0, 1, 10, 2, ...), so
    they are sorted as integers.

    Raises:
        BundleError: there is no such entry, or its ids have gaps.
    """
    entries = {entry.key: entry.value for entry in model.metadata_props}
    try:
        names = {int(key): str(value) for key, value in ast.literal_eval(entries["names"]).items()}
    except (KeyError, ValueError, SyntaxError, AttributeError) as error:
        raise BundleError(f"the ONNX metadata has no readable `names`: {error!r}") from error
    if sorted(names) != list(range(len(names))):
        raise BundleError(f"the label ids in the ONNX metadata have gaps: {sorted(names)}")
    return [names[index] for index in range(len(names))]
