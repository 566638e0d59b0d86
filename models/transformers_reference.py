"""The published model in its own pipeline: transformers' image processor, torch and its decoding.

A reference for the four Hugging Face families that shares nothing with the served path but the
published files: the resize, the normalisation, the network and the post-processing are all
transformers' own. It runs in a process of its own, because torch and onnxruntime do not go together
in one; frames go over its pipes (a JSON line, then as many bytes as the line says).
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from models.detections import Detections
from models.errors import BundleError
from models.transformers_checkpoint import CONFIG, WEIGHTS, load, published_config
from models.transformers_export import torch_environment


class TransformersReference:
    """Runs a published directory. The process ends with this object.

    processor: transformers' class of the image processor (the Pillow backend).
    settings: what the family's catalogue entry changes in that processor's defaults.
    labels: by class id.

    Raises:
        BundleError: the files cannot be loaded.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        labels: Sequence[str],
        *,
        model_type: str,
        processor: str,
        settings: Mapping[str, Any],
    ) -> None:
        published_config(files, model_type, labels)
        self.labels = list(labels)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "models.transformers_reference"],
            env=torch_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        _write(
            self._pipe("stdin"),
            {
                "config": str(files[CONFIG]),
                "weights": str(files[WEIGHTS]),
                "processor": processor,
                "settings": dict(settings),
            },
        )
        self._answer()

    def __call__(self, image: bytes, threshold: float) -> Detections:
        _write(self._pipe("stdin"), {"threshold": threshold}, image)
        found = self._answer()
        return Detections(
            boxes=np.array(found["boxes"], np.float32).reshape(-1, 4),
            scores=np.array(found["scores"], np.float32),
            class_ids=np.array(found["class_ids"], np.int32),
            height=found["height"],
            width=found["width"],
        )

    def close(self) -> None:
        """Ends the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def __del__(self) -> None:
        if hasattr(self, "_process") and self._process.poll() is None:
            self.close()

    def _pipe(self, name: str) -> IO[bytes]:
        pipe: IO[bytes] = getattr(self._process, name)
        return pipe

    def _answer(self) -> dict[str, Any]:
        answer, _ = _read(self._pipe("stdout"))
        if answer is None:
            raise BundleError(f"the reference's process ended with {self._process.wait()}")
        if "error" in answer:
            raise BundleError(answer["error"])
        return answer


def _write(pipe: IO[bytes], header: Mapping[str, Any], body: bytes = b"") -> None:
    pipe.write(json.dumps({**header, "body": len(body)}).encode() + b"\n" + body)
    pipe.flush()


def _read(pipe: IO[bytes]) -> tuple[dict[str, Any] | None, bytes]:
    line = pipe.readline()
    if not line:
        return None, b""
    header = json.loads(line)
    return header, pipe.read(header["body"])


def main(asked: IO[bytes], answers: IO[bytes]) -> None:
    """In the reference's process: load once, then answer image after image until the pipe ends."""
    wanted, _ = _read(asked)
    assert wanted is not None
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
        import transformers

        torch.set_grad_enabled(False)
        torch.set_num_threads(2)
        config = json.loads(Path(wanted["config"]).read_bytes())
        model = load(config, Path(wanted["weights"]))
        processor = getattr(transformers, wanted["processor"])(**wanted["settings"])
    except ImportError as error:
        wanted = {"error": f'the reference needs pip install "detserve[export]" ({error})'}
    except BundleError as error:
        wanted = {"error": str(error)}
    _write(answers, {key: value for key, value in wanted.items() if key == "error"})
    while True:
        header, body = _read(asked)
        if header is None:
            return
        _write(answers, _detect(model, processor, body, header["threshold"]))


def _detect(model: Any, processor: Any, image: bytes, threshold: float) -> dict[str, Any]:
    """Detections by falling score; boxes are cut at the image's edges, which transformers' own
    post-processing leaves to the caller."""
    import io

    from PIL import Image, ImageOps

    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(image))).convert("RGB")
    inputs = processor(images=picture, return_tensors="pt")
    (found,) = processor.post_process_object_detection(
        model(**inputs), threshold=threshold, target_sizes=[(picture.height, picture.width)]
    )
    order = found["scores"].argsort(descending=True, stable=True)
    limits = np.array([picture.width, picture.height] * 2, np.float32)
    return {
        "boxes": found["boxes"][order].numpy().clip(0, limits).tolist(),
        "scores": found["scores"][order].tolist(),
        "class_ids": found["labels"][order].tolist(),
        "height": picture.height,
        "width": picture.width,
    }


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
