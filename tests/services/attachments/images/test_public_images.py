"""The pictures Pillow is tested with, from its source distribution, through our converter.

Fetched once with pip and kept in pytest's cache. A part of them in short form;
`make test-full SIZE=full` takes all.
"""

import shutil
import subprocess
import sys
import tarfile
import warnings
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import PIL
import pytest
from PIL import Image, ImageChops, ImageCms, ImageOps, ImageStat

from services.attachments.images import containers
from services.attachments.images.conversion import convert
from services.attachments.images.outcome import (
    MAX_FRAMES,
    MAX_PIXELS,
    ConvertedImage,
    UnreadableImage,
)
from services.attachments.isolation.converter import ConverterProcess
from tests.services.attachments.images.samples import opened
from tests.sizes import FULL

SUFFIXES = (".png", ".apng", ".jpg", ".jpeg", ".gif", ".webp", ".ico")
MOST_BYTES = 5 * 1024 * 1024
MOST_BYTES_OF_SMALL = 100_000
FETCH_SECONDS = 60
FOLDER = "/Tests/images/"
# Levels: colours through a profile are rounded twice; quality 80 blurs single pixels, not areas.
ROUNDING = 2
MEAN, MEAN_OF_AREAS, AREA = 12.0, 4.0, 8

REFUSED = {"test_extents_transparency.gif": "a second GIF begins where the next block should"}
DIFFERENT = {"app13.jpg": "sixteen pixels of noise, of which quality 80 keeps the average"}

pytestmark = [pytest.mark.slow, pytest.mark.full("properties")]


@pytest.fixture(scope="session")
def public_images(pytestconfig: pytest.Config) -> dict[str, Path]:
    cache = pytestconfig.cache
    if cache is None:
        pytest.skip("pytest runs without its cache, where the pictures would be kept")
    home = cache.mkdir("public-images")
    kept = home / PIL.__version__
    if not kept.is_dir():
        unpacked = home / f"{PIL.__version__}.part"
        shutil.rmtree(unpacked, ignore_errors=True)
        _unpack(_fetched(home), unpacked)
        unpacked.rename(kept)
    return {str(file.relative_to(kept)): file for file in sorted(kept.rglob("*.*"))}


def _fetched(home: Path) -> Path:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    source = ["--no-deps", "--no-binary", "pillow", f"pillow=={PIL.__version__}"]
    try:
        subprocess.run(
            [*command, "--retries", "0", "--dest", str(home), *source],
            check=True,
            capture_output=True,
            timeout=FETCH_SECONDS,
        )
        return next(home.glob("*.tar.gz"))
    except (OSError, subprocess.SubprocessError, StopIteration) as error:
        pytest.skip(f"Pillow's source distribution cannot be fetched: {error}")


def _unpack(archive: Path, folder: Path) -> None:
    """Its pictures alone; the archive goes."""
    with tarfile.open(archive) as tar:
        for member in tar:
            _, found, name = member.name.partition(FOLDER)
            stream = tar.extractfile(member)
            wanted = found and name.lower().endswith(SUFFIXES) and member.size <= MOST_BYTES
            if wanted and ".." not in name and stream:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(stream.read())
    archive.unlink()


def chosen(name: str) -> bool:
    """PNGs are three in four, and many of them alike."""
    listed = name in REFUSED or name in DIFFERENT
    special = not name.endswith(".png") or "trns" in name
    return FULL or listed or special or zlib.crc32(name.encode()) % 3 == 0


def test_public_image_is_refused_or_looks_as_pillow_reads_it(
    public_images: dict[str, Path],
) -> None:
    assert set(REFUSED) | set(DIFFERENT) <= set(public_images)
    found = {
        name: _verdict(file.read_bytes()) for name, file in public_images.items() if chosen(name)
    }
    refused = {name for name, verdict in found.items() if verdict.startswith("refused")}
    different = {name for name, verdict in found.items() if verdict.startswith("different")}
    assert refused == set(REFUSED), {name: found[name] for name in refused ^ set(REFUSED)}
    assert different == set(DIFFERENT), {name: found[name] for name in different ^ set(DIFFERENT)}
    assert list(found.values()).count("same") > len(found) / 2


@pytest.mark.stack
def test_confined_child_gives_what_the_function_gives(
    public_images: dict[str, Path], converter: ConverterProcess
) -> None:
    """Metadata, profiles and palettes of all kinds need no call that the confinement refuses."""
    chosen_ones = [file.read_bytes() for name, file in public_images.items() if chosen(name)]
    small = [data for data in chosen_ones if len(data) <= MOST_BYTES_OF_SMALL]
    assert len(small) > 200
    assert [_told(converter.convert, data) for data in small] == [
        _told(convert, data) for data in small
    ]


def _told(convert_one: Callable[[bytes], ConvertedImage], data: bytes) -> ConvertedImage | str:
    try:
        return convert_one(data)
    except UnreadableImage as refusal:
        return str(refusal)


def _verdict(data: bytes) -> str:
    expected = _without_complaint(data)
    try:
        result = convert(data)
    except UnreadableImage as refusal:
        return f"refused: {refusal}" if expected else "unreadable to both"
    assert result.width * result.height <= MAX_PIXELS
    assert 1 <= result.frames <= MAX_FRAMES
    return _compared(result, expected) if expected else "doubtful"


def _compared(result: ConvertedImage, expected: Image.Image) -> str:
    if (result.width, result.height) != expected.size:
        return f"different: {result.width}×{result.height} instead of {expected.size}"
    image = opened(result.data).convert("RGBA")
    if result.mime_type == "image/webp" and not containers.read_webp(result.data).lossless:
        areas = max(_means(image, expected, _reduced))
        single = max(_means(image, expected, _on_green))
        same = areas <= MEAN_OF_AREAS and single <= MEAN
        return "same" if same else f"different: {single:.1f} on average, {areas:.1f} of areas"
    difference = ImageChops.difference(_on_green(image), _on_green(expected))
    worst = max(difference.getchannel(band).getextrema()[1] for band in "RGB")
    return "same" if worst <= expected.info["tolerance"] else f"different: {worst} levels at worst"


def _means(
    image: Image.Image, expected: Image.Image, seen: Callable[[Image.Image], Image.Image]
) -> list[float]:
    return ImageStat.Stat(ImageChops.difference(seen(image), seen(expected))).mean


def _reduced(image: Image.Image) -> Image.Image:
    return _on_green(image).reduce(AREA)


def _on_green(image: Image.Image) -> Image.Image:
    """What is fully transparent has no colour to differ in."""
    ground = Image.new("RGBA", image.size, (90, 160, 30, 255))
    ground.alpha_composite(image)
    return ground.convert("RGB")


def _without_complaint(data: bytes) -> Image.Image | None:
    """Its first picture as Pillow alone reads it, upright, in RGBA."""
    try:
        with warnings.catch_warnings(action="error"), opened(data) as image:
            if image.info.get("default_image"):
                image.seek(1)  # what comes before is a stand-in, not a frame
            image.load()
            return _plain(ImageOps.exif_transpose(image))
    except (OSError, SyntaxError, ValueError, Warning, Image.DecompressionBombError):
        return None


def _plain(image: Image.Image) -> Image.Image:
    profile = image.info.get("icc_profile")
    mode = "RGBA" if image.has_transparency_data else "RGB"
    if image.mode == "I;16":
        image = _eight_bits(image)
    if profile:
        image = _in_srgb(
            image if image.mode in ("CMYK", "L") else image.convert(mode), profile, mode
        )
    plain = image.convert("RGBA")
    plain.info["tolerance"] = ROUNDING if profile else 0
    return plain


def _eight_bits(image: Image.Image) -> Image.Image:
    low, high = image.tobytes()[::2], image.tobytes()[1::2]
    grey = Image.frombytes("L", image.size, high)
    key = image.info.get("transparency")
    if key is not None:
        clear = (key & 255, key >> 8)
        alpha = bytes(0 if pair == clear else 255 for pair in zip(low, high, strict=True))
        grey.putalpha(Image.frombytes("L", image.size, alpha))
    return grey


def _in_srgb(image: Image.Image, profile: bytes, mode: str) -> Image.Image:
    srgb = ImageCms.createProfile("sRGB")
    try:
        read = ImageCms.ImageCmsProfile(BytesIO(profile))
        return ImageCms.profileToProfile(image, read, srgb, outputMode=mode) or image
    except (ImageCms.PyCMSError, OSError):
        return image
