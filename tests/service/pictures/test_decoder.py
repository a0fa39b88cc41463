"""What becomes of pictures of each kind, and which files are refused."""

import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from listings.service.pictures import decoder
from listings.service.pictures.decoder import InvalidPictureError
from tests.pictures import BLUE, GREEN, RED, WHITE, draw, encode, many_scans, noise, photo, png_of_size, profile, turn

NAME = "0123456789abcdef0123456789abcdef"
Colour = tuple[int, int, int]
UPRIGHT = {(0.25, 0.5): RED, (0.75, 0.25): GREEN, (0.75, 0.75): BLUE}
"""The colours of a drawing, by place."""


def convert(data: bytes, folder: Path) -> Image.Image:
    """Convert an upload, check what all results have in common, and return the JPEG."""
    upload = folder / "upload"
    upload.write_bytes(data)
    with upload.open("rb") as file:
        answer = decoder.convert(file, folder, NAME)
    files = {path.name: path for path in folder.iterdir() if path != upload}
    assert set(files) == {f"{NAME}.jpg", *(f"{NAME}-{width}.webp" for width in (400, 800, 1600))}
    assert answer["size"] == sum(path.stat().st_size for path in files.values())
    for path in files.values():
        with Image.open(path) as result:
            result.load()
            assert result.mode == "RGB"
            assert not {"exif", "comment", "icc_profile", "xmp"} & set(result.info)
            if path.suffix == ".webp":
                assert result.format == "WEBP"
                assert max(result.size) <= int(path.stem.rpartition("-")[2])
    with Image.open(files[f"{NAME}.jpg"]) as opened:
        assert opened.format == "JPEG"
        jpeg = opened.copy()
    assert (answer["width"], answer["height"]) == jpeg.size
    assert max(jpeg.size) <= 1600
    return jpeg


def refuse(data: bytes, folder: Path) -> str:
    upload = folder / "upload"
    upload.write_bytes(data)
    with upload.open("rb") as file, pytest.raises(InvalidPictureError) as caught:
        decoder.convert(file, folder, NAME)
    return str(caught.value)


def assert_colours(picture: Image.Image, expected: dict[tuple[float, float], Colour], tolerance: int = 12) -> None:
    for (x, y), colour in expected.items():
        found = picture.getpixel((round(x * picture.width), round(y * picture.height)))
        assert isinstance(found, tuple)
        assert all(abs(one - other) <= tolerance for one, other in zip(found, colour, strict=True)), (found, colour)


@pytest.mark.parametrize(
    ("kind", "options"), [("JPEG", {}), ("PNG", {}), ("WEBP", {}), ("JPEG", {"progressive": True})]
)
def test_each_of_the_three_formats_is_accepted(tmp_path: Path, kind: str, options: dict[str, bool]) -> None:
    picture = convert(encode(draw(), kind, quality=95, **options), tmp_path)
    assert picture.size == (640, 480)
    assert_colours(picture, UPRIGHT)


@pytest.mark.parametrize(("size", "expected"), [((3200, 1000), (1600, 500)), ((999, 4000), (400, 1600))])
def test_a_large_picture_is_shrunk_to_1600_pixels(
    tmp_path: Path, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    picture = convert(encode(draw(size)), tmp_path)
    assert picture.size == expected
    with Image.open(tmp_path / f"{NAME}-400.webp") as small:
        assert max(small.size) == 400


@pytest.mark.parametrize("size", [(1, 1), (17, 3), (399, 20)])
def test_a_small_picture_is_never_enlarged(tmp_path: Path, size: tuple[int, int]) -> None:
    assert convert(encode(draw(size), "PNG"), tmp_path).size == size
    with Image.open(tmp_path / f"{NAME}-1600.webp") as large:
        assert large.size == size


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_upright_and_without_its_gps(tmp_path: Path, orientation: int) -> None:
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = draw() if orientation == 1 else draw().transpose(undo[orientation])
    data = turn(stored, orientation)
    assert b"secret comment" in data
    picture = convert(data, tmp_path)
    assert picture.size == (640, 480)
    assert_colours(picture, UPRIGHT)
    for path in tmp_path.glob(f"{NAME}*"):
        content = path.read_bytes()
        assert b"Exif" not in content
        assert b"secret comment" not in content


def test_a_turned_large_photo_has_its_longest_side_at_1600(tmp_path: Path) -> None:
    picture = convert(turn(draw((4000, 3000)), 6), tmp_path)
    assert picture.size == (1200, 1600)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_data_is_ignored(tmp_path: Path) -> None:
    assert convert(encode(draw(), exif=b"Exif\0\0II*\0\xff\xff\xff\xff"), tmp_path).size == (640, 480)


def test_a_cmyk_photo_becomes_rgb(tmp_path: Path) -> None:
    picture = convert(encode(draw(mode="CMYK"), quality=95), tmp_path)
    assert_colours(picture, UPRIGHT, tolerance=20)


def test_a_profile_is_converted_to_srgb(tmp_path: Path) -> None:
    lab = encode(Image.new("RGB", (64, 64), (128, 128, 128)), "PNG", icc_profile=profile("sRGB"))
    assert_colours(convert(lab, tmp_path), {(0.5, 0.5): (128, 128, 128)}, tolerance=2)


@pytest.mark.parametrize("content", [b"no profile", profile("LAB")])
def test_a_damaged_or_wrong_profile_is_ignored(tmp_path: Path, content: bytes) -> None:
    assert_colours(convert(encode(draw(), "PNG", icc_profile=content), tmp_path), UPRIGHT)


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (0x8080, 128), (0xFFFF, 255)])
def test_grey_of_16_bits_is_scaled(tmp_path: Path, value: int, expected: int) -> None:
    grey = Image.frombytes("I;16", (8, 8), value.to_bytes(2, "little") * 64)
    picture = convert(encode(grey, "PNG"), tmp_path)
    assert_colours(picture, {(0.5, 0.5): (expected, expected, expected)}, tolerance=2)


@pytest.mark.parametrize("picture", [draw(mode="L"), draw().quantize(), Image.new("1", (64, 64), 1)])
def test_grey_and_palettes_become_rgb(tmp_path: Path, picture: Image.Image) -> None:
    converted, expected = convert(encode(picture, "PNG"), tmp_path), picture.convert("RGB")
    for x, y in UPRIGHT:
        colour = expected.getpixel((round(x * expected.width), round(y * expected.height)))
        assert isinstance(colour, tuple)
        assert_colours(converted, {(x, y): (int(colour[0]), int(colour[1]), int(colour[2]))})


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_transparent_places_become_white(tmp_path: Path, kind: str) -> None:
    picture = draw(mode="RGBA")
    picture.paste((90, 90, 90, 0), (0, 0, 320, 480))
    assert_colours(
        convert(encode(picture, kind, lossless=True, exact=True), tmp_path), {(0.25, 0.5): WHITE, (0.75, 0.25): GREEN}
    )


def test_a_transparent_palette_becomes_white(tmp_path: Path) -> None:
    picture = Image.new("P", (64, 64), 0)
    picture.putpalette([*RED, *GREEN])
    assert_colours(convert(encode(picture, "PNG", transparency=0), tmp_path), {(0.5, 0.5): WHITE})


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_an_animation_becomes_its_first_frame(tmp_path: Path, kind: str) -> None:
    later = Image.new("RGB", (640, 480), WHITE)
    data = encode(draw(), kind, save_all=True, append_images=[later, later], lossless=True)
    assert_colours(convert(data, tmp_path), UPRIGHT)


def test_a_noisy_picture_is_small_at_400_pixels(tmp_path: Path) -> None:
    convert(encode(noise((1200, 1200))), tmp_path)
    assert (tmp_path / f"{NAME}-400.webp").stat().st_size <= 40_000


def test_code_behind_a_picture_is_not_stored(tmp_path: Path) -> None:
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("evil.html", "<script>alert(1)</script>")
    data = encode(draw(), comment=b"<?php system($_GET['c']); ?>") + b"<script>alert(2)</script>" + archive.getvalue()
    convert(data, tmp_path)
    for path in tmp_path.glob(f"{NAME}*"):
        content = path.read_bytes()
        assert not any(code in content for code in (b"<?php", b"<script", b"evil.html", b"PK\x03\x04"))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (encode(draw(mode="P"), "GIF"), "GIF"),
        (encode(draw(), "BMP"), "BMP"),
        (encode(draw(), "TIFF"), "TIFF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "HEIC"),
        (b"\0\0\0\x1cftypavif\0\0\0\0avifmif1", "AVIF"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0isom", "a video"),
        (b"%PDF-1.7 ", "PDF"),
        (b"PK\x03\x04" + bytes(40), "a ZIP archive"),
        (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "SVG or XML"),
        (b"\xef\xbb\xbf<svg/>", "SVG or XML"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"", "empty"),
        (b"data:image/jpeg;base64,/9j/4AAQ", "another file"),
        (bytes(1000), "another file"),
    ],
)
def test_a_file_of_another_type_is_named(tmp_path: Path, data: bytes, kind: str) -> None:
    assert refuse(data, tmp_path).startswith(f"The picture must be JPEG, PNG or WebP, but it is {kind}")


def test_the_message_about_heic_says_how_to_convert(tmp_path: Path) -> None:
    assert "Most Compatible" in refuse(b"\0\0\0\x18ftypheic", tmp_path)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(tmp_path: Path, kind: str, share: float) -> None:
    data = encode(noise((300, 300)), kind)
    assert "damaged or incomplete" in refuse(data[: int(len(data) * share)], tmp_path)


@pytest.mark.parametrize("head", [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\x10\0\0\0WEBP"])
def test_a_head_with_garbage_behind_it_is_refused(tmp_path: Path, head: bytes) -> None:
    assert "damaged or incomplete" in refuse(head + b"garbage" * 100, tmp_path)


def test_too_many_pixels_are_refused_before_decoding(tmp_path: Path) -> None:
    assert refuse(png_of_size(60_000, 60_000), tmp_path) == "A PNG can have at most 25 megapixels, but this has 3600.0"
    message = "A JPEG can have at most 60 megapixels, but this has 80.0"
    assert refuse(encode(Image.new("L", (10_000, 8_000))), tmp_path) == message


def test_too_many_scans_are_refused_before_decoding(tmp_path: Path) -> None:
    assert "more than 100 scans" in refuse(many_scans(200), tmp_path)


def test_a_small_photo_has_its_colour(tmp_path: Path) -> None:
    assert_colours(convert(photo(3), tmp_path), {(0.5, 0.5): (3, 0, 99)})
