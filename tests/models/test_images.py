"""`models.images`: every kind of file gives the exact pixels, or is refused with a sentence.

Files are made here by Pillow, or chunk by chunk where Pillow cannot write the kind.
"""

import io
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from models import home
from models.errors import DamagedImage, ImageError, ImageTooLarge, UnsupportedImage
from models.images import ImageHeader, decode, inspect

LIMIT = 1_000_000
SOF, SOS, EOI = b"\xff\xc0", b"\xff\xda", b"\xff\xd9"


def picture(height: int = 48, width: int = 64, channels: int = 3) -> np.ndarray:
    """Smooth patches with some noise: uint8 [height, width, channels]."""
    rng = np.random.default_rng(7)
    patches = rng.integers(0, 256, (4, 5, channels), np.uint8)
    smooth = cv2.resize(patches, (width, height), interpolation=cv2.INTER_LINEAR)
    noise = rng.integers(-9, 10, (height, width, channels))
    return np.clip(smooth.reshape(height, width, channels) + noise, 0, 255).astype(np.uint8)


def encoded(pixels: np.ndarray | Image.Image, kind: str, **options: object) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels.squeeze())
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def jpeg(pixels: np.ndarray | None = None, **options: object) -> bytes:
    return encoded(picture() if pixels is None else pixels, "JPEG", quality=90, **options)


def cmyk_jpeg(**options: object) -> bytes:
    return jpeg(Image.merge("CMYK", Image.fromarray(picture(channels=4)).split()), **options)


def pillow(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + checksum


def png_header(height: int, width: int, depth: int = 8, colours: int = 2, lace: int = 0) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, lace))
    return b"\x89PNG\r\n\x1a\n" + header


def rows(samples: np.ndarray) -> bytes:
    """Filter byte 0 and the row, for each row of [H, bytes of a row]."""
    return b"".join(b"\0" + row.tobytes() for row in samples)


def png(
    samples: np.ndarray, depth: int, colours: int, *extra: bytes, width: int | None = None
) -> bytes:
    """A PNG of [H, W, ...] samples, packed and big-endian already, with `extra` before IDAT."""
    header = png_header(len(samples), width or samples.shape[1], depth, colours)
    idat = chunk(b"IDAT", zlib.compress(rows(samples)))
    return header + b"".join(extra) + idat + chunk(b"IEND")


def interlaced(pixels: np.ndarray, missing: int = 0) -> bytes:
    """8-bit RGB in Adam7's seven passes, without the last `missing` bytes."""
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2))
    reduced = [pixels[y::dy, x::dx] for x, y, dx, dy in (*passes, (0, 1, 1, 2))]
    stream = b"".join(rows(part) for part in reduced if part.size)
    header = png_header(*pixels.shape[:2], lace=1)
    idat = chunk(b"IDAT", zlib.compress(stream[: len(stream) - missing]))
    return header + idat + chunk(b"IEND")


def packed(samples: np.ndarray, depth: int) -> np.ndarray:
    """[H, W] samples of 1, 2 or 4 bits, several to a byte, first in the high bits."""
    bits = np.unpackbits(samples[:, :, None], axis=2)[:, :, 8 - depth :]
    return np.packbits(bits.reshape(len(samples), -1), axis=1)


def exif(orientation: int, order: str = "<", kind: int = 3) -> bytes:
    """EXIF with one entry, as JPEG's APP1 holds it."""
    value = struct.pack(order + "H", orientation) + b"\0\0"
    if kind != 3:
        value = struct.pack(order + "I", orientation)
    start = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "IHHHI", 8, 1, 0x0112, kind, 1)
    return b"Exif\0\0" + start + entry + value + bytes(4)


def grey_as_rgb(grey: np.ndarray) -> np.ndarray:
    return np.repeat(grey.reshape(*grey.shape[:2], 1), 3, axis=2)


def check_is_refused(data: bytes, error: type[ImageError]) -> str:
    with pytest.raises(error) as caught:
        decode(data, LIMIT)
    sentence = str(caught.value)
    assert type(caught.value) is error
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(sentence) < 160
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return sentence


# --- What the first bytes say ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (jpeg(), ImageHeader("jpeg", 48, 64)),
        (jpeg(progressive=True), ImageHeader("jpeg", 48, 64)),
        (cmyk_jpeg(), ImageHeader("jpeg", 48, 64)),
        (encoded(picture(), "PNG"), ImageHeader("png", 48, 64)),
        (jpeg(exif=exif(6)), ImageHeader("jpeg", 48, 64)),
        (encoded(picture(), "PNG")[:33], ImageHeader("png", 48, 64)),
    ],
    ids=["jpeg", "progressive", "cmyk", "png", "size as stored, not upright", "png header alone"],
)
def test_header_gives_type_and_stored_size(data: bytes, header: ImageHeader) -> None:
    assert inspect(data, LIMIT) == header


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8",
        b"\x89PNG\r\n",
        b"not an image",
        b"<svg/>",
        encoded(picture(), "GIF"),
        encoded(picture(), "WEBP"),
        encoded(picture(), "BMP"),
        encoded(picture(), "TIFF"),
        b" " + jpeg(),
    ],
    ids=["empty", "2 bytes", "6 bytes", "text", "svg", "gif", "webp", "bmp", "tiff", "shifted"],
)
def test_other_type_is_refused_naming_those_accepted(data: bytes) -> None:
    sentence = check_is_refused(data, UnsupportedImage)
    assert "JPEG and PNG are accepted" in sentence
    assert UnsupportedImage.status == 415


@pytest.mark.parametrize("data", [jpeg(), encoded(picture(), "PNG")], ids=["jpeg", "png"])
def test_image_over_the_limit_is_refused_naming_size_and_limit(data: bytes) -> None:
    assert decode(data, 48 * 64).shape == (48, 64, 3)
    with pytest.raises(ImageTooLarge, match=r"64 pixels wide and 48 high.* 3072 .*limit is 3071"):
        decode(data, 48 * 64 - 1)


def test_png_bomb_is_refused_without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the bomb was touched")

    bomb = png_header(60_000, 60_000) + chunk(b"IDAT", zlib.compress(bytes(10_000_000), 9))
    monkeypatch.setattr("models.images._decode_png", refuse)
    monkeypatch.setattr("models.images.zlib.decompressobj", refuse)
    with pytest.raises(ImageTooLarge, match=r"3600000000 .*limit is 50000000"):
        decode(bomb + chunk(b"IEND"), 50_000_000)


@pytest.mark.parametrize(
    "data",
    [
        png_header(0, 5),
        png_header(5, 0),
        png_header(5, 5)[:-1],
        png_header(5, 5)[:-1] + b"!",
        png_header(5, 5)[:8] + chunk(b"tEXt", b"a\0b") + png_header(5, 5)[8:],
        jpeg()[:20],
        jpeg()[: jpeg().index(SOS)],
        b"\xff\xd8\xff" + bytes(100),
        jpeg().replace(SOF + b"\0\x11\x08\0\x30", SOF + b"\0\x11\x08\0\0"),
    ],
    ids=[
        *("png without rows", "png without columns", "png cut", "png checksum", "png not first"),
        *("jpeg cut", "jpeg without scan", "jpeg magic alone", "jpeg without rows"),
    ],
)
def test_header_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedImage):
        inspect(data, LIMIT)


# --- Pixels ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        jpeg(subsampling=0),
        jpeg(subsampling=1),
        jpeg(subsampling=2),
        jpeg(progressive=True),
        jpeg(keep_rgb=True),
        jpeg(restart_marker_blocks=3),
        jpeg(picture(channels=1)),
        jpeg(picture(channels=1), progressive=True),
        jpeg(picture(1, 1)),
        jpeg(picture(1, 37)),
        jpeg(picture(37, 1), subsampling=2),
        cmyk_jpeg(),
        cmyk_jpeg(progressive=True),
        cmyk_jpeg().replace(b"Adobe\0\x64\0\0\0\0\0", b"Adobe\0\x64\0\0\0\0\2"),
        jpeg() + b"trailing bytes",
        jpeg(comment=SOS + b"\0" * 50),
    ],
    ids=[
        *("4:4:4", "4:2:2", "4:2:0", "progressive", "rgb", "restarts", "grey", "grey progressive"),
        *("1x1", "1 row", "1 column", "cmyk", "cmyk progressive", "ycck", "trailing", "comment"),
    ],
)
def test_jpeg_gives_the_pixels_pillow_gives(data: bytes) -> None:
    pixels = decode(data, LIMIT)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, pillow(data))


GREY, RGB, RGBA = picture(channels=1)[:, :, 0], picture(), picture(channels=4)
DEEP = np.random.default_rng(3).integers(0, 65536, (48, 64, 4), np.uint16)
NOISE = np.random.default_rng(5).integers(0, 256, (250, 300, 3), np.uint8)
PALETTE = np.random.default_rng(4).integers(0, 256, (256, 3), np.uint8)
PLTE = chunk(b"PLTE", PALETTE.tobytes())
FRAME = struct.pack(">IIIIIHHBB", 0, 64, 48, 0, 0, 1, 10, 1, 0)  # APNG, as large as the image
ANIMATION = {"save_all": True, "append_images": [Image.fromarray(RGB[::-1])]}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (png(GREY, 8, 0), grey_as_rgb(GREY)),
        (png(GREY, 8, 0, chunk(b"tRNS", b"\0\x64")), grey_as_rgb(GREY)),
        (png(packed(GREY >> 7, 1), 1, 0, width=64), grey_as_rgb((GREY >> 7) * 255)),
        (png(packed(GREY >> 6, 2), 2, 0, width=64), grey_as_rgb((GREY >> 6) * 85)),
        (png(packed(GREY >> 4, 4), 4, 0, width=64), grey_as_rgb((GREY >> 4) * 17)),
        (png(DEEP[:, :, 0].astype(">u2"), 16, 0), grey_as_rgb(DEEP[:, :, 0] >> 8)),
        (png(RGBA[:, :, :2], 8, 4), grey_as_rgb(RGBA[:, :, 0])),
        (png(DEEP[:, :, :2].astype(">u2"), 16, 4), grey_as_rgb(DEEP[:, :, 0] >> 8)),
        (png(RGB, 8, 2), RGB),
        (png(RGB, 8, 2, chunk(b"tRNS", bytes(6))), RGB),
        (png(DEEP[:, :, :3].astype(">u2"), 16, 2), DEEP[:, :, :3] >> 8),
        (png(RGBA, 8, 6), RGBA[:, :, :3]),
        (png(DEEP.astype(">u2"), 16, 6), DEEP[:, :, :3] >> 8),
        (png(GREY, 8, 3, PLTE), PALETTE[GREY]),
        (png(GREY, 8, 3, PLTE, chunk(b"tRNS", bytes(256))), PALETTE[GREY]),
        (png(packed(GREY >> 6, 2), 2, 3, PLTE, width=64), PALETTE[GREY >> 6]),
        (encoded(NOISE, "PNG"), NOISE),
        (interlaced(RGB), RGB),
        (interlaced(RGB[:3, :2]), RGB[:3, :2]),
        (interlaced(RGB[:1, :1]), RGB[:1, :1]),
        (png(RGB[:1, :1], 8, 2), RGB[:1, :1]),
        (png(RGB, 8, 2, chunk(b"gAMA", struct.pack(">I", 100_000))), RGB),
        (png(RGB, 8, 2, PLTE), RGB),
        (png(RGB, 8, 2) + b"trailing bytes", RGB),
        (png(RGB, 8, 2, chunk(b"IDAT")), RGB),
        (png(RGB, 8, 2, chunk(b"acTL", struct.pack(">II", 1, 0)), chunk(b"fcTL", FRAME)), RGB),
        (encoded(RGB, "PNG", **ANIMATION), RGB),
        (encoded(RGB, "PNG", default_image=True, **ANIMATION), RGB),
    ],
    ids=[
        *("grey", "grey with a transparent level", "grey 1 bit", "grey 2 bits", "grey 4 bits"),
        *("grey 16 bits", "grey and alpha", "grey and alpha 16 bits", "rgb"),
        *("rgb with a transparent colour", "rgb 16 bits", "rgba", "rgba 16 bits", "palette"),
        *("transparent palette", "palette 2 bits", "several idats", "interlaced", "3x2"),
        *("interlaced 1x1", "1x1", "gamma", "rgb with palette", "trailing", "empty idat"),
        *("apng of 1 frame", "apng", "apng with a default image"),
    ],
)
def test_png_gives_the_stored_colours(data: bytes, expected: np.ndarray) -> None:
    pixels = decode(data, LIMIT)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, expected)


def test_image_within_our_limit_passes_pillows_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    for data in (jpeg(), cmyk_jpeg(), encoded(picture(), "PNG")):
        assert decode(data, LIMIT).shape == (48, 64, 3)
    assert Image.MAX_IMAGE_PIXELS == 10


def test_real_images_give_the_pixels_pillow_and_opencv_give() -> None:
    paths: list[Path] = []
    for dataset in ("coco128", "publaynet"):
        paths += sorted((home.data() / dataset / "images").glob("*.jpg"))[:20]
    if not paths:
        pytest.skip(f"no coco128 or publaynet images under {home.data()} (DETSERVE_DATA)")
    for path in paths:
        data = path.read_bytes()
        pixels = decode(data, 10_000_000)
        np.testing.assert_array_equal(pixels, pillow(data), err_msg=path.name)
        opencv = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        np.testing.assert_array_equal(pixels, opencv[:, :, ::-1], err_msg=path.name)
        check_is_refused(data[: len(data) * 2 // 3], DamagedImage)


# --- Orientation ----------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", ["<", ">"], ids=["little endian", "big endian"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_image_comes_out_upright(kind: str, order: str, orientation: int) -> None:
    data = encoded(picture(), kind, exif=exif(orientation, order))
    stored = Image.open(io.BytesIO(data))
    pixels = decode(data, LIMIT)
    assert pixels.shape == ((64, 48, 3) if orientation >= 5 else (48, 64, 3))
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, np.asarray(ImageOps.exif_transpose(stored)))


@pytest.mark.parametrize(
    "data",
    [
        jpeg(exif=exif(6, kind=4)),
        jpeg(exif=exif(6)).replace(b"\xff\xe1", b"\xff\xe1\0\x07xmp/\0\xff\xe1"),
        cmyk_jpeg(exif=exif(6)),
        png(RGB, 8, 2)[:-12] + chunk(b"eXIf", exif(6)[6:]) + chunk(b"IEND"),
        png(RGB, 8, 2, chunk(b"eXIf", exif(6))),
        interlaced(RGB)[:33] + chunk(b"eXIf", exif(6)[6:]) + interlaced(RGB)[33:],
    ],
    ids=["long", "after xmp", "cmyk", "after the pixels", "with JPEG's prefix", "interlaced"],
)
def test_orientation_is_found_in_unusual_places(data: bytes) -> None:
    assert decode(data, LIMIT).shape == (64, 48, 3)


@pytest.mark.parametrize(
    "block",
    [
        exif(0),
        exif(9),
        exif(6, kind=2),
        exif(6)[:20],
        exif(6)[:6],
        b"Exif\0\0JUNK" + exif(6)[10:],
        b"Exif\0\0II*\0\xff\xff\xff\xff" + exif(6)[14:],
        b"Exif\0\0II*\0" + struct.pack("<IH", 8, 65535) + bytes(24),
    ],
    ids=["0", "9", "text", "cut", "empty", "no byte order", "directory outside", "too many"],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_broken_exif_is_ignored(kind: str, block: bytes) -> None:
    plain = decode(encoded(picture(), kind), LIMIT)
    np.testing.assert_array_equal(decode(encoded(picture(), kind, exif=block), LIMIT), plain)


# --- Damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0.1, 0.3, 0.5, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("end", [b"", EOI], ids=["cut", "cut and closed"])
@pytest.mark.parametrize(
    "data",
    [jpeg(), jpeg(progressive=True), jpeg(picture(channels=1)), cmyk_jpeg()],
    ids=["baseline", "progressive", "grey", "cmyk"],
)
def test_truncated_jpeg_is_refused(data: bytes, end: bytes, kept: float) -> None:
    start = data.rindex(SOS) + 12  # so that progressive files too are cut in their last scan
    check_is_refused(data[: start + int((len(data) - 2 - start) * kept)] + end, DamagedImage)


def test_jpeg_without_its_end_marker_is_refused() -> None:
    check_is_refused(jpeg()[:-2], DamagedImage)


@pytest.mark.parametrize(
    "filler",
    [b"\xff\xd9", b"\xff\xd3", b"\xff\xc4", b"\xa5\x3c", b"\0", b""],
    ids=["end marker", "restart marker", "table marker", "noise", "zeros", "bytes left out"],
)
def test_jpeg_with_a_broken_middle_is_refused(filler: bytes) -> None:
    """Of damage that libjpeg notices; other bytes may happen to be a picture, unchecksummed."""
    data = jpeg(subsampling=0)
    middle = (data.index(SOS) + len(data)) // 2
    broken = data[:middle] + (filler * 600)[:600] + data[middle + 600 :]
    check_is_refused(broken, DamagedImage)


@pytest.mark.parametrize(("height", "width"), [(480, 64), (49 + 8, 64), (16, 64), (48, 640)])
def test_jpeg_whose_header_lies_is_refused(height: int, width: int) -> None:
    data = jpeg(subsampling=0)
    at = data.index(SOF) + 5
    lie = data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]
    assert inspect(lie, LIMIT) == ImageHeader("jpeg", height, width)
    check_is_refused(lie, DamagedImage)


def test_jpeg_with_a_second_frame_header_is_refused() -> None:
    data = jpeg()
    at, end = data.index(SOF), data.index(SOS)
    frame = bytearray(data[at : at + 19])
    frame[5:9] = b"\xff\xdc\xff\xdc"
    check_is_refused(data[:end] + bytes(frame) + data[end:], DamagedImage)


def test_jpeg_of_countless_scans_is_refused_without_decoding() -> None:
    data = jpeg(picture(channels=1), progressive=True)
    last = data.rindex(SOS)
    bomb = data[:-2] + data[last:-2] * 100 + EOI
    assert "more than 100 scans" in check_is_refused(bomb, DamagedImage)


def test_jpeg_of_rare_subsampling_is_refused_naming_those_accepted() -> None:
    assert "4:2:0" in check_is_refused(cmyk_jpeg(subsampling=2), DamagedImage)


PNG = png(RGB, 8, 2)
STREAM = zlib.compress(rows(RGB))


@pytest.mark.parametrize("kept", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_truncated_png_is_refused(kept: float) -> None:
    check_is_refused(PNG[: 33 + int((len(PNG) - 33) * kept)], DamagedImage)


@pytest.mark.parametrize(
    "data",
    [
        PNG[:-12],
        PNG[:-1],
        PNG[:-13] + b"\0" + PNG[-12:],
        PNG[:2000] + b"!" + PNG[2001:],
        png(RGB, 8, 2, chunk(b"tEXt", b"a\0b")[:-1] + b"!"),
        png_header(48, 64) + chunk(b"IEND"),
        png_header(48, 64) + chunk(b"IDAT") + chunk(b"IEND"),
        png_header(48, 64) + chunk(b"IDAT", STREAM[:-100]) + chunk(b"IEND"),
        png_header(48, 64) + chunk(b"IDAT", zlib.compress(rows(RGB[:-1]))) + chunk(b"IEND"),
        png_header(48, 64) + chunk(b"IDAT", zlib.compress(b"\7" + rows(RGB)[1:])) + chunk(b"IEND"),
        png_header(48, 64) + chunk(b"IDAT", b"not zlib") + chunk(b"IEND"),
        png_header(48, 1) + chunk(b"IDAT", zlib.compress(rows(RGB[:-1, :1]))) + chunk(b"IEND"),
        interlaced(RGB, missing=1 + 3 * 64),
        png_header(48, 64, lace=1) + PNG[33:],
        png_header(48, 65) + PNG[33:],
        png_header(1, 1) + png_header(48, 64)[8:] + PNG[33:],
        png_header(48, 64, depth=5) + PNG[33:],
        png_header(48, 64, colours=5) + PNG[33:],
        png(GREY, 8, 3),
        png(RGB, 8, 2, chunk(b"CgBI", bytes(4))),
        PNG[:33] + struct.pack(">I", 2**32 - 1) + PNG[37:],
    ],
    ids=[
        *("no IEND", "IEND cut", "IDAT checksum", "IDAT byte", "text checksum", "no IDAT"),
        *("empty IDAT", "stream cut, checksum right", "row missing, checksum right"),
        *("unknown filter", "no zlib"),
        *("row of 1 pixel missing, checksum right", "row missing, interlaced, checksum right"),
        *("says interlaced", "says wider", "two headers"),
        *("unknown depth", "unknown colours", "no palette", "unknown critical chunk", "length"),
    ],
)
def test_damaged_png_is_refused(data: bytes) -> None:
    check_is_refused(data, DamagedImage)


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(50_000_000)))],
        [chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(50_000_000)))],
        [chunk(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(50_000_000)))],
        [chunk(b"iTXt", b"\xff"), chunk(b"tEXt"), chunk(b"pHYs"), chunk(b"tIME")],
    ],
    ids=["text", "profile", "international text", "nonsense"],
)
def test_chunks_beside_the_pixels_are_not_read(chunks: list[bytes]) -> None:
    np.testing.assert_array_equal(decode(png(RGB, 8, 2, *chunks), LIMIT), RGB)


# --- Anything at all ------------------------------------------------------------------------

SEEDS = [
    *(jpeg(picture(20, 24)), jpeg(picture(20, 24), progressive=True), jpeg(exif=exif(5))),
    *(cmyk_jpeg(), png(GREY, 8, 3, PLTE), interlaced(RGB), png(RGB, 8, 2, chunk(b"eXIf", exif(3)))),
]


def check_is_an_image_or_refused(data: bytes, limit: int) -> None:
    try:
        pixels = decode(data, limit)
    except ImageError:
        return
    header = inspect(data, limit)
    assert sorted(pixels.shape[:2]) == sorted((header.height, header.width))
    assert pixels.shape[2] == 3
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous


@settings(deadline=None, max_examples=200)
@given(st.sampled_from([b"", b"\xff\xd8\xff", PNG[:8], PNG[:33]]), st.binary(max_size=300))
def test_random_bytes_are_an_image_or_refused(start: bytes, rest: bytes) -> None:
    check_is_an_image_or_refused(start + rest, LIMIT)


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(SEEDS),
    st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([1, 0, 4]), st.binary(max_size=6)), max_size=4
    ),
    st.booleans(),
)
@example(SEEDS[0], [(0.0, 0, b"")], False)
def test_mutated_image_is_an_image_or_refused(
    seed: bytes, edits: list[tuple[float, int, bytes]], early: bool
) -> None:
    """Each edit replaces some bytes at a fraction of the file by others; headers are hit often."""
    data = seed
    for place, dropped, added in edits:
        at = int(place * (min(len(data), 700) if early else len(data)))
        data = data[:at] + added + data[at + dropped :]
    check_is_an_image_or_refused(data, LIMIT)


@settings(deadline=None, max_examples=200)
@given(
    height=st.integers(0, 40),
    width=st.integers(0, 40),
    depth=st.sampled_from([1, 2, 4, 8, 16]),
    colours=st.integers(0, 6),
    lace=st.integers(0, 2),
    kinds=st.lists(st.sampled_from([b"PLTE", b"tRNS", b"eXIf", b"fcTL", b"IHDR"]), max_size=3),
    content=st.binary(max_size=40),
    length=st.integers(0, 4000),
)
def test_png_with_right_checksums_is_an_image_or_refused(
    height: int,
    width: int,
    depth: int,
    colours: int,
    lace: int,
    kinds: list[bytes],
    content: bytes,
    length: int,
) -> None:
    """Damage behind right checksums, so that it reaches the decoder."""
    data = png_header(height, width, depth, colours, lace)
    data += b"".join(chunk(kind, content) for kind in kinds)
    data += chunk(b"IDAT", zlib.compress(bytes(length))) + chunk(b"IEND")
    check_is_an_image_or_refused(data, LIMIT)
