"""Pictures that tests upload, drawn with Pillow."""

import struct
import zlib
from io import BytesIO
from typing import Any

from PIL import Image, ImageChops, ImageCms, ImageFilter

RED, GREEN, BLUE, WHITE = (200, 30, 30), (30, 160, 30), (30, 30, 200), (255, 255, 255)
ORIENTATION = 0x0112
GPS = 0x8825


def draw(size: tuple[int, int] = (640, 480), mode: str = "RGB") -> Image.Image:
    """Return a picture with a red left half, and a green upper and a blue lower quarter at its right."""
    picture = Image.new("RGB", size, RED)
    width, height = size
    picture.paste(GREEN, (width // 2, 0, width, height // 2))
    picture.paste(BLUE, (width // 2, height // 2, width, height))
    return picture.convert(mode)


def encode(picture: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def photo(number: int = 0) -> bytes:
    """Return the file of a small JPEG, which differs by number."""
    return encode(Image.new("RGB", (64, 48), (number % 256, number // 256 % 256, 99)), comment=b"%d" % number)


def noise(size: tuple[int, int], seed: int = 1) -> Image.Image:
    """Return a picture of noise, which no format can compress well."""
    return Image.effect_noise(size, 90 + seed).convert("RGB")


def scene(size: tuple[int, int]) -> Image.Image:
    """Return a picture that compresses like a photo with much detail: the half as large a detail, the fainter it is."""
    layers, side, strength = [Image.new("L", size, 128)], 2, 70.0
    while side <= max(size):
        detail = Image.effect_noise((side, max(1, side * size[1] // size[0])), strength).resize(size)
        layers, side, strength = [ImageChops.add(layers[0], detail, 1, -128)], side * 2, strength * 0.75
    colour = layers[0].filter(ImageFilter.GaussianBlur(9)).point(lambda value: 128 + (value - 128) * 0.4)
    return Image.merge("YCbCr", (layers[0], colour, ImageChops.invert(colour))).convert("RGB")


def turn(picture: Image.Image, orientation: int) -> bytes:
    """Return a JPEG that says how to turn it, and where it was taken."""
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    exif.get_ifd(GPS)[1] = "S"
    exif.get_ifd(GPS)[2] = (41.0, 17.0, 22.0)
    return encode(picture, quality=95, exif=exif, comment=b"secret comment")


def profile(name: str) -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes()  # type: ignore[arg-type]


def png_of_size(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    """Return a PNG whose head declares a size, with one row of data."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(bytes(width))) + _chunk(b"IEND")


def many_scans(count: int) -> bytes:
    """Return a small progressive JPEG, of which one scan is repeated."""
    data = encode(draw((64, 64)), progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * count + b"\xff\xd9"


def _chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
