"""The process that runs a published implementation, whichever it is: process.py's other end.

    python -E -P models/references/worker.py models/references/ultralytics_pipeline.py

Standard input: a JSON line of settings for the pipeline's `load`, then for each image a JSON line
`{"bytes": n, "threshold": t}` and n bytes, the encoded image. Standard output: one JSON line for
each of them: `{"labels": [...] or null}`, then detections; or `{"error": kind, "said": sentence}`.

Its Python may have none of the packages that serving has, and of this project only `models` is put
where it can be imported: the environment around the served path stays outside.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType


def main(pipeline: str) -> None:
    """Load, then answer until standard input ends."""
    module_from("models", Path(__file__).parents[1] / "__init__.py")
    from models.errors import DetserveError

    asked = sys.stdin.buffer
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what a library prints is no answer

        def answer(content: object) -> None:
            print(json.dumps(content), file=answers, flush=True)

        try:
            settings = json.loads(asked.readline())
            labels, detect = module_from("pipeline", Path(pipeline)).load(settings)
        except ImportError as error:
            return answer({"error": "ImportError", "said": " ".join(str(error).split())})
        except DetserveError as error:
            return answer({"error": type(error).__name__, "said": str(error)})
        answer({"labels": labels})
        while line := asked.readline():
            wanted = json.loads(line)
            image = asked.read(wanted["bytes"])
            if len(image) < wanted["bytes"]:
                return None  # the asking process has gone
            try:
                answer(detect(image, wanted["threshold"]))
            except DetserveError as error:
                answer({"error": type(error).__name__, "said": str(error)})
    return None


def module_from(name: str, path: Path) -> ModuleType:
    """The module in that file, under that name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
