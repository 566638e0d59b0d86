"""How fast each JPEG decoder and resizer is, and whether it gives the reference's pixels.

    python -m tests.gpu.decoders FOLDER          # of JPEG files; prints a table in Markdown

A benchmark, not a test. The reference's pixels are Pillow's and OpenCV's, which both families of
published preprocessing use and which agree with each other. nvImageCodec is measured where it is
installed (`nvidia-nvimgcodec-cu13`, `nvidia-nvjpeg`) and there is a GPU.
"""

import io
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import simplejpeg  # type: ignore[import-untyped]
from PIL import Image

ROUNDS = 5
WORKERS = 8

Decoder = Callable[[bytes], np.ndarray]


def main(folder: Path) -> None:
    files = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    expected = [_pillow(data) for data in files]
    print(f"{len(files)} JPEG files, median {np.median([len(f) for f in files]) / 1e3:.0f} kB\n")
    print("| decoder | ms an image | images/s, many at once | same pixels | largest difference |")
    print("|---|---|---|---|---|")
    for name, decoder in CPU.items():
        with ThreadPoolExecutor(WORKERS) as pool:

            def many(images: Sequence[bytes], decode: Decoder = decoder) -> list[np.ndarray]:
                return list(pool.map(decode, images))

            _row(name, decoder, many, files, expected)
    _on_the_gpu(files, expected)
    print("\n| resizer | ms an image | same pixels as its reference | largest difference |")
    print("|---|---|---|---|")
    for name, (resize, reference) in RESIZERS.items():
        wanted = [reference(image) for image in expected]
        seconds = _seconds(resize, expected)
        same, largest = _agreement([resize(image) for image in expected], wanted)
        print(f"| {name} | {seconds * 1e3:.2f} | {same} of {len(files)} | {largest} |")


def _row(
    name: str,
    one: Decoder,
    many: Callable[[Sequence[bytes]], list[np.ndarray]],
    files: Sequence[bytes],
    expected: Sequence[np.ndarray],
) -> None:
    same, largest = _agreement([one(data) for data in files], expected)
    alone, together = _seconds(one, files), _seconds(many, [files])
    print(
        f"| {name} | {alone * 1e3:.2f} | {len(files) / together:.0f} | {same} of {len(files)} "
        f"| {largest} |",
        flush=True,
    )


def _on_the_gpu(files: Sequence[bytes], expected: Sequence[np.ndarray]) -> None:
    try:
        from nvidia import nvimgcodec  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        print("| nvImageCodec: not installed | | | | |")
        return
    codec = nvimgcodec.Decoder()  # one thread at a time: two end in errors and hang

    def many(images: Sequence[bytes]) -> list[np.ndarray]:
        return [np.asarray(image.cpu()) for image in codec.decode(list(images))]

    name = f"nvImageCodec {nvimgcodec.__version__}, to the GPU and back"
    _row(name, lambda data: np.asarray(codec.decode(data).cpu()), many, files, expected)


def _seconds(call: Callable[[Any], Any], inputs: Sequence[Any]) -> float:
    """Median over rounds of the mean over inputs."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for each in inputs:
            call(each)
        rounds.append((time.perf_counter() - start) / len(inputs))
    return float(np.median(rounds))


def _agreement(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> tuple[int, int]:
    """How many are the same, and the largest difference of a channel, of 255."""
    gaps = [
        int(np.abs(one.astype(np.int16) - other).max()) if one.shape == other.shape else 255
        for one, other in zip(found, expected, strict=True)
    ]
    return gaps.count(0), max(gaps)


def _opencv(data: bytes) -> np.ndarray:
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _pillow(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def _strict(data: bytes) -> np.ndarray:
    pixels: np.ndarray = simplejpeg.decode_jpeg(data, strict=True)
    return pixels


def _fast(data: bytes) -> np.ndarray:
    pixels: np.ndarray = simplejpeg.decode_jpeg(data, fastdct=True, fastupsample=True)
    return pixels


CPU: dict[str, Decoder] = {
    "simplejpeg, strict (served)": _strict,
    "simplejpeg, fast DCT and upsampling": _fast,
    "OpenCV": _opencv,
    "Pillow": _pillow,
}


def _opencv_640(image: np.ndarray) -> np.ndarray:
    return cv2.resize(image, (640, 480), interpolation=cv2.INTER_LINEAR)


def _pillow_800(image: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((1066, 800), Image.Resampling.BILINEAR))


def _opencv_800(image: np.ndarray) -> np.ndarray:
    return cv2.resize(image, (1066, 800), interpolation=cv2.INTER_LINEAR)


# name -> (resizer, the resizer that the family's published preprocessing uses)
RESIZERS = {
    "OpenCV to 640x480 (served: YOLO)": (_opencv_640, _opencv_640),
    "Pillow to 1066x800 (served: DETR)": (_pillow_800, _pillow_800),
    "OpenCV to 1066x800": (_opencv_800, _pillow_800),
}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
