"""Encoded images in, upright RGB pixels out: JPEG and PNG, recognised by content.

Why: Pillow and OpenCV answer a damaged JPEG with half-grey pixels, and a detector then answers
with confident nonsense; here an image is decoded whole or refused, at a cost known beforehand.

A JPEG carries no checksum: one cut short is always refused, one overwritten in its middle only
where libjpeg notices that the bits do not add up. A PNG is checked whole.

What is left out on purpose: colour profiles and gamma (as Pillow and OpenCV leave them out),
every frame of an animation but the default one, and orientation written anywhere but in EXIF.
"""

import io
import re
import struct
import zlib
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import cv2
import numpy as np
import simplejpeg  # type: ignore[import-untyped]
from PIL import Image, PngImagePlugin

from models.errors import DamagedImage, ImageError, ImageTooLarge, UnsupportedImage

_JPEG_START = b"\xff\xd8\xff"
_JPEG_SCAN = b"\xff\xda"
_JPEG_APP1 = b"\xff\xe1"
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by IHDR colour type (PNG, 11.2.1)
_PNG_PALETTE = 3
_ADAM7 = (  # first column, first row, column step, row step of each pass (PNG, 8.2)
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
    *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
)
_INFLATE_STEP = 1 << 16  # bytes taken in, and at most held, at a time while counting

# Each scan of a progressive JPEG may revisit the whole picture, and 12 bytes are a scan: 400 in
# 115 kB took 7 s at 5000x5000. Encoders write about 10, libjpeg-turbo's own fuzzers allow 500.
_MAX_SCANS = 100
_SCAN = re.compile(rb"\xff\xda\0")  # SOS and the first byte of its length (T.81, B.2.3)

_MAX_SEGMENTS = 1000  # looked at for EXIF, which comes first or second; bounds a Python loop
_EXIF_START = b"Exif\0\0"
_ORIENTATION = 0x0112
_EXIF_VALUE = {3: "H", 4: "I"}  # SHORT, as the standard has it, and LONG, as some writers do


@dataclass(frozen=True)
class ImageHeader:
    """What an image says of itself; height and width as stored, before EXIF orientation."""

    format: Literal["jpeg", "png"]
    height: int
    width: int


def inspect(data: bytes, max_pixels: int) -> ImageHeader:
    """Read type and size from the first bytes; nothing is decoded, whatever the size claimed.

    Raises:
        UnsupportedImage: neither a JPEG nor a PNG by its first bytes.
        DamagedImage: the header cannot be read (of a JPEG also: a chroma subsampling that
            libjpeg-turbo's strict decoder does not take), or it says 0 pixels.
        ImageTooLarge: height * width > max_pixels.
    """
    kind: Literal["jpeg", "png"]
    if data.startswith(_JPEG_START):
        kind = "jpeg"
        height, width, _ = _jpeg_header(data)
    elif data.startswith(_PNG_START):
        kind = "png"
        height, width = _png_size(data)
    else:
        raise UnsupportedImage("The image is neither a JPEG nor a PNG; JPEG and PNG are accepted.")
    if height < 1 or width < 1:
        raise DamagedImage(f"The {kind.upper()} header says that the image has no pixels.")
    if height * width > max_pixels:
        raise ImageTooLarge(
            f"The image is {width} pixels wide and {height} high, {height * width} in all; "
            f"the limit is {max_pixels}."
        )
    return ImageHeader(kind, height, width)


def decode(data: bytes, max_pixels: int) -> np.ndarray:
    """Decode a whole image: uint8 [H, W, 3] RGB, upright, C-contiguous.

    Grey is repeated, 16-bit samples keep their high byte, transparency is ignored (the stored
    colour counts, as in `cv2.imread`), CMYK is taken as Adobe writes it (inverted). EXIF
    orientation is applied; EXIF that cannot be read is ignored.

    Raises:
        UnsupportedImage, ImageTooLarge: as `inspect`.
        DamagedImage: as `inspect`, or the stream is truncated, broken or of an unknown variant.
    """
    header = inspect(data, max_pixels)
    try:
        if header.format == "jpeg":
            pixels, exif = _decode_jpeg(data), _jpeg_exif(data)
        else:
            pixels, exif = _decode_png(data)
    except ImageError:
        raise
    except Exception:  # the codecs' lists of exceptions are open; their words may quote the image
        raise DamagedImage(
            f"The {header.format.upper()} is truncated, damaged or of an unknown variant."
        ) from None
    return _upright(pixels, _orientation(exif))


def _jpeg_header(data: bytes) -> tuple[int, int, str]:
    """Height, width, and the colour space as simplejpeg names it."""
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data, strict=True)
    except Exception:  # as in `decode`; libjpeg-turbo says the same of both causes
        raise DamagedImage(
            "The JPEG header cannot be read, or its chroma subsampling is none of "
            "4:4:4, 4:2:2, 4:2:0, 4:4:0 and 4:1:1."
        ) from None
    return int(height), int(width), str(colours)


def _decode_jpeg(data: bytes) -> np.ndarray:
    """uint8 [H, W, 3] RGB as stored; strict, so libjpeg's warnings (grey filling) are errors."""
    if next(islice(_SCAN.finditer(data), _MAX_SCANS, None), None) is not None:
        raise DamagedImage(f"The JPEG has more than {_MAX_SCANS} scans.")
    if _jpeg_header(data)[2] in ("CMYK", "YCCK"):
        ink = simplejpeg.decode_jpeg(data, "CMYK", strict=True)
        size = (ink.shape[1], ink.shape[0])
        return np.array(Image.frombuffer("CMYK", size, ink, "raw", "CMYK;I", 0, 1).convert("RGB"))
    pixels: np.ndarray = simplejpeg.decode_jpeg(
        data, "RGB", fastdct=False, fastupsample=False, strict=True
    )
    return pixels


def _jpeg_exif(data: bytes) -> bytes:
    """The TIFF block of the first EXIF segment before the pixels, or nothing."""
    at = 2
    for _ in range(_MAX_SEGMENTS):
        if not data.startswith(b"\xff", at) or data.startswith(_JPEG_SCAN, at):
            break
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data.startswith(_JPEG_APP1, at) and data.startswith(_EXIF_START, at + 4):
            return data[at + 10 : end]
        at = end
    return b""


def _png_size(data: bytes) -> tuple[int, int]:
    """Height and width from IHDR, which must come first and be whole."""
    if data[8:16] != b"\0\0\0\x0dIHDR" or data[29:33] != _crc(data[12:29]):
        raise DamagedImage("The PNG header cannot be read.")
    width, height = struct.unpack_from(">II", data, 16)
    return height, width


def _crc(chunk: bytes) -> bytes:
    return zlib.crc32(chunk).to_bytes(4, "big")


def _decode_png(data: bytes) -> tuple[np.ndarray, bytes]:
    """uint8 [H, W, 3] RGB as stored, and the TIFF block of the EXIF chunk, or nothing.

    Pillow sees only the chunks that pixels need: no second header with another size, no
    compressed text, no animation; and only a whole stream, as it paints missing rows black. It
    is called without `Image.open`, whose pixel limit is a global of the process.
    """
    chunks, exif = _png_chunks(data)
    if data[25] == _PNG_PALETTE and b"PLTE" not in chunks:
        raise DamagedImage("The PNG has no palette for its colours.")
    if not _inflates_to(chunks[b"IDAT"], _png_stream_length(data)):
        raise DamagedImage("The PNG holds fewer pixels than its header says.")
    needed = [
        struct.pack(">I", len(chunks[kind])) + kind + chunks[kind] + _crc(kind + chunks[kind])
        for kind in (b"IHDR", b"PLTE", b"IDAT", b"IEND")
        if kind in chunks
    ]
    stream = io.BytesIO(_PNG_START + b"".join(needed))
    with PngImagePlugin.PngImageFile(stream) as picture:
        picture.load()
        if picture.mode != "I;16":
            return np.array(picture if picture.mode == "RGB" else picture.convert("RGB")), exif
        grey = (np.asarray(picture) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2), exif


def _png_chunks(data: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """IHDR, PLTE, IDAT (joined) and IEND, every chunk's checksum checked; and the EXIF block."""
    chunks: dict[bytes, bytes] = {}
    pixels, exif, at = [], b"", len(_PNG_START)
    while b"IEND" not in chunks:
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        kind, content = data[at + 4 : at + 8], data[at + 8 : end - 4]
        if end > len(data) or data[end - 4 : end] != _crc(data[at + 4 : end - 4]):
            raise DamagedImage("The PNG is truncated, or a checksum does not fit.")
        if kind == b"IDAT":
            pixels.append(content)
        elif kind in (b"IHDR", b"PLTE", b"IEND") and kind not in chunks:
            chunks[kind] = content
        elif kind == b"eXIf":
            exif = content.removeprefix(_EXIF_START)
        elif kind[:1].isupper():  # "critical": pixels cannot be read without it
            raise DamagedImage("The PNG has a chunk of an unknown kind, or repeats one.")
        at = end
    return chunks | {b"IDAT": b"".join(pixels)}, exif


def _png_stream_length(data: bytes) -> int:
    """Bytes that the pixels fill once inflated: each row, of each pass, after its filter byte."""
    width, height, depth, colours, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    length = 0
    for column, row, columns, rows in _ADAM7 if interlaced else ((0, 0, 1, 1),):
        across, down = -((column - width) // columns), -((row - height) // rows)
        if across > 0:
            length += down * (1 + (across * depth * _PNG_CHANNELS[colours] + 7) // 8)
    return length


def _inflates_to(stream: bytes, length: int) -> bool:
    """Whether a zlib stream holds at least `length` bytes; they are counted, not kept."""
    inflate = zlib.decompressobj()
    for at in range(0, len(stream), _INFLATE_STEP):
        tail = stream[at : at + _INFLATE_STEP]
        while tail and length > 0 and not inflate.eof:
            length -= len(inflate.decompress(tail, _INFLATE_STEP))
            tail = inflate.unconsumed_tail
        if length <= 0 or inflate.eof:
            return length <= 0
    return len(inflate.flush()) >= length


def _orientation(exif: bytes) -> int:
    """EXIF orientation 1..8 from a TIFF block's first directory; 1 where it cannot be read."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return 1
    try:
        (directory,) = struct.unpack_from(order + "I", exif, 4)
        (count,) = struct.unpack_from(order + "H", exif, directory)
        for entry in range(directory + 2, directory + 2 + 12 * count, 12):
            tag, kind = struct.unpack_from(order + "HH", exif, entry)
            if tag == _ORIENTATION:
                (value,) = struct.unpack_from(order + _EXIF_VALUE[kind], exif, entry + 8)
                return int(value) if 1 <= value <= 8 else 1
    except (struct.error, KeyError):
        return 1
    return 1


def _upright(stored: np.ndarray, orientation: int) -> np.ndarray:
    """Undo an EXIF orientation; uint8 [H, W, 3] in, C-contiguous [H, W, 3] or [W, H, 3] out."""
    if orientation >= 5:  # rows are the picture's columns (EXIF 2.32, 4.6.4, Orientation)
        stored = cv2.transpose(stored)
    flip = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}.get(orientation)  # 1 left-right, 0 up-down
    return stored if flip is None else cv2.flip(stored, flip)
