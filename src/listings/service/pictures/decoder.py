"""Convert uploaded pictures, in a process of its own that forks once per picture. Run it as a program.

It gets the path of a lock file, which all such processes of a machine share. Each line of its standard input is a
request in JSON, with the paths of the upload and of the folder for the results, and their name. Each line of its
standard output is an answer. It ends with its input. It imports nothing of the service, which never imports it.
"""

import fcntl
import json
import mmap
import os
import re
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image, ImageCms, ImageOps  # noqa: F401 - all formats are loaded before the first fork
from PIL.Image import Resampling, Transpose
from PIL.ImageCms import PyCMSError

_MAX_MEMORY = 512 * 1024 * 1024
_MAX_CPU_SECONDS, _MAX_SECONDS = 5, 60
_MAX_FILES = 32
_MAX_SCANS = 100
_MAX_PIXELS = {"JPEG": 60_000_000, "PNG": 25_000_000, "WEBP": 25_000_000}
_MAX_SIDE = 1600
_METHODS = {1600: 2, 800: 2, 400: 4}  # how long WebP looks for a small file, by longest side: 3 takes twice as long
_JPEG = {"quality": 85, "optimize": True, "progressive": True}
_QUALITIES = (78, 60, 40)  # for WebP; the lower ones are for noise
_MAX_SMALL_BYTES = 40_000  # of the smallest variant, of which a page shows many
_ORIENTATION = 0x0112
_TRANSPOSE = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
_KINDS = (
    (rb"\xff\xd8\xff", "JPEG"),
    (rb"\x89PNG\r\n\x1a\n", "PNG"),
    (rb"RIFF.{4}WEBP", "WEBP"),
    (rb".{4}ftyp(?:hei|hev|mif1|msf1)", "HEIC"),
    (rb".{4}ftypavi", "AVIF"),
    (rb".{4}ftyp|\x1aE\xdf\xa3|RIFF.{4}AVI ", "a video"),
    (rb"GIF8", "GIF"),
    (rb"BM", "BMP"),
    (rb"II\*\x00|MM\x00\*", "TIFF"),
    (rb"%PDF", "PDF"),
    (rb"PK\x03\x04", "a ZIP archive"),
    (rb"\xef?\xbb?\xbf?\s*(?:<\?xml|<svg|<!--)", "SVG or XML"),
    (rb"\xef?\xbb?\xbf?\s*<", "a web page: use the address of the picture itself"),
    (rb"\Z", "empty"),
)
_HEIC = (
    "HEIC. Convert it to JPEG first: on an iPhone, select Settings > Camera > Formats > Most Compatible, or export the "
    "photo as JPEG"
)
_sRGB = ImageCms.createProfile("sRGB")  # noqa: N816 - its name


class InvalidPictureError(Exception):
    """The upload is not a picture that can be used. The message is a sentence."""


def main() -> None:  # pragma: no cover - the tests start it without their environment
    """Answer requests until the input ends."""
    os.nice(19)
    with suppress(OSError):  # where /proc is not writable
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for line in sys.stdin.buffer:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = _run(json.loads(line))
        fcntl.flock(lock, fcntl.LOCK_UN)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _run(request: Mapping[str, str]) -> dict[str, Any]:  # pragma: no cover - as `main`
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        _run_child(request, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read(10_000)
    _, status, usage = os.wait4(pid, 0)
    used = {"cpu": usage.ru_utime + usage.ru_stime, "kibibytes": usage.ru_maxrss}
    if os.waitstatus_to_exitcode(status) == 0:
        answer: dict[str, Any] = json.loads(text)
        return answer | used
    return {"error": "The picture takes too long or too much memory to decode: save it as a plain JPEG", **used}


def _run_child(request: Mapping[str, str], writer: int) -> None:  # pragma: no cover - as `main`
    try:
        for descriptor in (0, 1):
            os.close(descriptor)  # only the parent uses them
        _limit()
        answer = _answer(request)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    finally:
        os._exit(1)


def _limit() -> None:  # pragma: no cover - as `main`
    for kind, limit in (
        (resource.RLIMIT_AS, _MAX_MEMORY),
        (resource.RLIMIT_CPU, _MAX_CPU_SECONDS),
        (resource.RLIMIT_NOFILE, _MAX_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_MAX_SECONDS)


def _answer(request: Mapping[str, str]) -> dict[str, Any]:  # pragma: no cover - as `main`
    try:
        with Path(request["source"]).open("rb") as source:
            return convert(source, Path(request["folder"]), request["name"])
    except InvalidPictureError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"unavailable": f"The files of the picture can't be written: {error.strerror}"}


def convert(source: BinaryIO, folder: Path, name: str) -> dict[str, Any]:
    """Write the files of a picture. Return its width and height, and the bytes of all files.

    Raises InvalidPictureError, OSError if a file can't be written, and MemoryError.
    """
    kind = _find_kind(source.read(32))
    _require_few_scans(source, kind)
    try:
        picture = _decode(source, kind)
    except (InvalidPictureError, MemoryError):
        raise
    except Exception as error:
        raise InvalidPictureError("The picture is damaged or incomplete: open it and save it again") from error
    size = _save(picture, folder / f"{name}.jpg", "JPEG", _JPEG)
    width, height = picture.size
    for side, method in _METHODS.items():
        picture = _shrink(picture, side)
        size += _save_variant(picture, folder / f"{name}-{side}.webp", method, is_small=side == min(_METHODS))
    return {"width": width, "height": height, "size": size}


def _find_kind(head: bytes) -> str:
    kind = next((kind for pattern, kind in _KINDS if re.match(pattern, head, re.DOTALL)), "another file")
    if kind not in _MAX_PIXELS:
        raise InvalidPictureError(
            f"The picture must be JPEG, PNG or WebP, but it is {_HEIC if kind == 'HEIC' else kind}"
        )
    return kind


def _require_few_scans(source: BinaryIO, kind: str) -> None:
    if kind != "JPEG":
        return
    with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
        scans = sum(1 for _ in re.finditer(rb"\xff\xda", data))
    if scans > _MAX_SCANS:  # it takes seconds to decode, however small it is
        raise InvalidPictureError(f"The JPEG has more than {_MAX_SCANS} scans: save it as a plain JPEG")


def _decode(source: BinaryIO, kind: str) -> Image.Image:
    Image.MAX_IMAGE_PIXELS = None  # the limits are our own
    source.seek(0)
    with Image.open(source, formats=(kind,)) as picture:
        width, height = picture.size
        if width * height > _MAX_PIXELS[kind]:
            millions, found = _MAX_PIXELS[kind] // 1_000_000, width * height / 1_000_000
            raise InvalidPictureError(f"A {kind} can have at most {millions} megapixels, but this has {found:.1f}")
        orientation, profile = _find_orientation(picture), picture.info.get("icc_profile")
        picture.draft(picture.mode, _fit(picture.size, _MAX_SIDE))  # a JPEG is decoded at a fraction of its size
        picture.load()
        plain = _convert_colours(_shrink(_simplify(picture), _MAX_SIDE), profile)
    transposed = _TRANSPOSE.get(orientation)
    upright = plain if transposed is None else plain.transpose(transposed)
    upright.info = {}  # comments and the like, which would be saved again
    return upright


def _find_orientation(picture: Image.Image) -> int:
    try:
        return int(picture.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 - damaged data about a picture does not make it unusable
        return 1


def _fit(size: tuple[int, int], side: int) -> tuple[int, int]:
    factor = min(1.0, side / max(size))
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def _shrink(picture: Image.Image, side: int) -> Image.Image:
    size = _fit(picture.size, side)
    return picture if size == picture.size else picture.resize(size, Resampling.LANCZOS, reducing_gap=2.0)


def _simplify(picture: Image.Image) -> Image.Image:
    # Pictures in the modes RGB, RGBA, CMYK and L can be resized.
    if picture.mode.startswith("I"):  # 16 bits of grey, which Pillow would cut off at 255
        return picture.convert("I").point(lambda value: value * (1 / 257) + 0).convert("L")
    if picture.has_transparency_data:
        return picture if picture.mode == "RGBA" else picture.convert("RGBA")
    return picture if picture.mode in {"RGB", "CMYK", "L"} else picture.convert("RGB")


def _convert_colours(picture: Image.Image, profile: bytes | None) -> Image.Image:
    if picture.mode == "RGBA":
        background = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(background, picture).convert("RGB")
    if profile:
        with suppress(PyCMSError, OSError, ValueError):  # a damaged profile, or one of other colours
            converted = ImageCms.profileToProfile(
                picture, ImageCms.ImageCmsProfile(BytesIO(profile)), _sRGB, outputMode="RGB"
            )
            if converted is not None:
                return converted
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _save_variant(picture: Image.Image, path: Path, method: int, *, is_small: bool) -> int:
    best, *lower = ({"quality": quality, "method": method} for quality in _QUALITIES)
    size = _save(picture, path, "WEBP", best)
    while is_small and size > _MAX_SMALL_BYTES and lower:
        size = _save(picture, path, "WEBP", lower.pop(0))
    return size


def _save(picture: Image.Image, path: Path, kind: str, options: Mapping[str, Any]) -> int:
    with path.open("wb") as file:
        picture.save(file, kind, **options)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


if __name__ == "__main__":  # pragma: no cover - as `main`
    main()
