"""Damaged files of every type, through the converter's child: each ends as an image or an error.

300 in short form; `make test-full SIZE=full` makes it 20,000.
"""

import os
import random
from pathlib import Path

import psutil

from services.attachments.images.outcome import ConvertedImage, UnreadableImage
from services.attachments.isolation.converter import ConverterProcess
from tests.support.images.samples import one_of_each
from tests.support.sizes import sized

FILES = sized(300, 20_000)
# Of the processor, which another program may have meanwhile.
SECONDS_EACH = 5.0
RESIDENT_BYTES = 400 * 1024 * 1024
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
EXTREMES = (
    b"\0",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\0\0\0\0",
    b"\x7f\xff\xff\xff",
    b"\xff" * 4,
)


def damaged(seed: int) -> bytes:
    """The same seed gives the same file."""
    chance = random.Random(seed)
    names = list(one_of_each())
    data = bytearray(one_of_each()[names[seed % len(names)]])
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        _damage(data, chance)
    return bytes(data)


def _damage(data: bytearray, chance: random.Random) -> None:
    # Headers decide most, so half of the damage is done there.
    at = chance.randrange(min(len(data), chance.choice((64, len(data)))) or 1)
    match chance.randrange(6):
        case 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        case 1:
            extreme = chance.choice(EXTREMES)
            data[at : at + len(extreme)] = extreme
        case 2:
            del data[at : at + chance.randrange(1, 40)]
        case 3:
            data[at:at] = chance.randbytes(chance.randrange(1, 40))
        case 4:
            data[at:at] = data[at : at + chance.randrange(1, 200)]
        case _:
            other = one_of_each()[chance.choice(list(one_of_each()))]
            data[at:] = other[chance.randrange(len(other)) :]


def test_damaged_image_yields_image_or_error_within_time_and_memory_limits(
    converter: ConverterProcess,
) -> None:
    images = 0
    for seed in range(FILES):
        child, spent = converter.pid, _spent(converter)
        outcome = _outcome(converter, damaged(seed))
        if isinstance(outcome, UnreadableImage):
            assert outcome.code in ERRORS, f"seed {seed}: {outcome}"
        else:
            images += 1
            assert outcome.width * outcome.height <= 50_000_000, f"seed {seed}"
            assert len(outcome.blurhash) == 28, f"seed {seed}"
        before = spent if converter.pid == child else 0.0
        assert _spent(converter) - before < SECONDS_EACH, f"seed {seed}"
        assert _resident(converter) < RESIDENT_BYTES, f"seed {seed}"
    assert 0 < images < FILES


def _outcome(converter: ConverterProcess, data: bytes) -> ConvertedImage | UnreadableImage:
    try:
        return converter.convert(data)
    except UnreadableImage as error:
        return error


def _resident(converter: ConverterProcess) -> int:
    pages = Path(f"/proc/{converter.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _spent(converter: ConverterProcess) -> float:
    times = psutil.Process(converter.pid).cpu_times() if converter.pid else None
    return times.user + times.system if times else 0.0
