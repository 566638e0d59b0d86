"""Mend the installed tensorrt-stubs, which are no Python: mypy then reads them (`make lint`).

Why not leave them out: TensorRT is not installable without NVIDIA's index, so a type checker is
all that checks calls to it here. All published versions up to 10.13.0.35.1 have the same two
mistakes, made by the tool that generated them from docstrings. Mending twice changes nothing.
"""

import ast
import importlib.metadata
import re
import sys


def main() -> int:
    package = importlib.metadata.distribution("tensorrt-stubs")
    path = package.locate_file("tensorrt_bindings/tensorrt.pyi")
    with open(str(path), encoding="utf-8") as file:
        text = file.read()
    # a parameter with the name of a keyword
    text = re.sub(r"\bin: ", "in_: ", text)
    # a parameter without a default after others that have one
    text = re.sub(r"(def add_scale_nd\(.*, channel_axis: int)\)", r"\1 = ...)", text)
    try:
        ast.parse(text)
    except SyntaxError as error:
        print(f"tensorrt-stubs {package.version}: line {error.lineno}: {error}", file=sys.stderr)
        return 1
    with open(str(path), "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
