"""Plain documents side by side: which fields are not the same."""

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def differences(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    same: Callable[[Any, Any], bool] = operator.eq,
    prefix: str = "",
) -> Iterator[tuple[str, Any, Any]]:
    """(path, value in a, value in b), field by field; None where one has none.

    Lists are compared whole.
    """
    for name in dict.fromkeys([*a, *b]):
        old, new = a.get(name), b.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from differences(old, new, same, f"{prefix}{name}.")
        elif not same(old, new):
            yield f"{prefix}{name}", old, new
