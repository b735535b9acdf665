"""Tests that the converter turns each damaged file into an image or an error.

The test converts 300 damaged files of all types, or 20,000 in `make test-full SIZE=full`.
"""

import os
import random
from pathlib import Path

import psutil

from services.attachments.images.outcome import ConvertedImage, UnreadableImage
from services.attachments.isolation.converter import ConverterProcess
from tests.support.images.samples import encode_each_format
from tests.support.sizes import sized

FILE_COUNT = sized(300, 20_000)
# The maximum CPU time to convert one damaged file. The test doesn't limit the elapsed time, because
# the elapsed time also depends on other programs on the machine.
MAX_CPU_SECONDS = 5.0
MAX_RESIDENT_BYTES = 400 * 1024 * 1024
ERRORS = {
    "image.unsupported_type",
    "image.empty",
    "image.truncated",
    "image.unreadable",
    "image.side_too_long",
    "image.too_many_pixels",
    "image.too_many_frames",
    "image.animation_too_large",
}
EXTREME_VALUES = (
    b"\0",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\0\0\0\0",
    b"\x7f\xff\xff\xff",
    b"\xff" * 4,
)


def damage_image(seed: int) -> bytes:
    """Return an image file with random damage. Equal seeds give equal files."""
    random_source = random.Random(seed)
    names = list(encode_each_format())
    data = bytearray(encode_each_format()[names[seed % len(names)]])
    for _ in range(random_source.choice((1, 1, 2, 4, 16))):
        _damage(data, random_source)
    return bytes(data)


def _damage(data: bytearray, random_source: random.Random) -> None:
    # Damage in the headers has the greatest effect, so put half of the damage near the start of the
    # file.
    position = random_source.randrange(min(len(data), random_source.choice((64, len(data)))) or 1)
    match random_source.randrange(6):
        case 0:
            data[position : position + 1] = bytes([random_source.randrange(256)])
        case 1:
            extreme = random_source.choice(EXTREME_VALUES)
            data[position : position + len(extreme)] = extreme
        case 2:
            del data[position : position + random_source.randrange(1, 40)]
        case 3:
            data[position:position] = random_source.randbytes(random_source.randrange(1, 40))
        case 4:
            data[position:position] = data[position : position + random_source.randrange(1, 200)]
        case _:
            other_image = encode_each_format()[random_source.choice(list(encode_each_format()))]
            data[position:] = other_image[random_source.randrange(len(other_image)) :]


def test_damaged_image_yields_image_or_error_within_time_and_memory_limits(
    converter: ConverterProcess,
) -> None:
    image_count = 0
    for seed in range(FILE_COUNT):
        pid = converter.pid
        cpu_seconds = _measure_cpu_seconds(converter)
        outcome = _convert(converter, damage_image(seed))
        if isinstance(outcome, UnreadableImage):
            assert outcome.code in ERRORS, f"seed {seed}: {outcome}"
        else:
            image_count += 1
            assert outcome.width * outcome.height <= 50_000_000, f"seed {seed}"
            assert len(outcome.blurhash) == 28, f"seed {seed}"
        cpu_seconds_before = cpu_seconds if converter.pid == pid else 0.0
        assert _measure_cpu_seconds(converter) - cpu_seconds_before < MAX_CPU_SECONDS, (
            f"seed {seed}"
        )
        assert _measure_resident_bytes(converter) < MAX_RESIDENT_BYTES, f"seed {seed}"
    assert 0 < image_count < FILE_COUNT


def _convert(converter: ConverterProcess, data: bytes) -> ConvertedImage | UnreadableImage:
    try:
        return converter.convert(data)
    except UnreadableImage as error:
        return error


def _measure_resident_bytes(converter: ConverterProcess) -> int:
    pages = Path(f"/proc/{converter.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _measure_cpu_seconds(converter: ConverterProcess) -> float:
    times = psutil.Process(converter.pid).cpu_times() if converter.pid else None
    return times.user + times.system if times else 0.0
