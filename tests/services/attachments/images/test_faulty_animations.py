import struct
from collections.abc import Callable, Sequence

import pytest

from services.attachments.images.conversion import convert_image
from tests.support.images.samples import (
    PNG_SIGNATURE,
    Rectangle,
    apng,
    chunk,
    timeline,
)

SIZE = (20, 10)
FULL = (0, 0, *SIZE)
STILL, FIRST, SECOND, THIRD = ((level, 9, 60, 255) for level in (10, 80, 150, 220))
FRAMES = [Rectangle(FULL, colour) for colour in (FIRST, SECOND, THIRD)]
FRAME_MS = 100
WITH_STAND_IN = apng(SIZE, FRAMES, stand_in=STILL)
FROM_STILL = apng(SIZE, FRAMES)

Chunks = list[tuple[bytes, bytes]]


def chunks_of(data: bytes) -> Chunks:
    found, at = list[tuple[bytes, bytes]](), len(PNG_SIGNATURE)
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def of_chunks(chunks: Chunks) -> bytes:
    return PNG_SIGNATURE + b"".join(chunk(name, body) for name, body in chunks)


def places(chunks: Chunks, name: bytes) -> Sequence[int]:
    return [at for at, (found, _) in enumerate(chunks) if found == name]


def shown(data: bytes) -> list[tuple[int, ...]]:
    result = convert_image(data)
    return [colour for colour, _ in timeline(result.data)]


def changed(data: bytes, change: Callable[[Chunks], None]) -> bytes:
    chunks = chunks_of(data)
    change(chunks)
    return of_chunks(chunks)


def claiming(frames: int) -> Callable[[Chunks], None]:
    def change(chunks: Chunks) -> None:
        (at,) = places(chunks, b"acTL")
        chunks[at] = (b"acTL", struct.pack(">II", frames, 0))

    return change


def without(name: bytes, number: int) -> Callable[[Chunks], None]:
    def change(chunks: Chunks) -> None:
        del chunks[places(chunks, name)[number]]

    return change


def swapped(name: bytes, number: int, by: int) -> Callable[[Chunks], None]:
    def change(chunks: Chunks) -> None:
        at = places(chunks, name)[number]
        chunks[at], chunks[at + by] = chunks[at + by], chunks[at]

    return change


def replaced(number: int, body: Callable[[bytes], bytes]) -> Callable[[Chunks], None]:
    """Replaces the body of a frame's control chunk."""

    def change(chunks: Chunks) -> None:
        at = places(chunks, b"fcTL")[number]
        chunks[at] = (b"fcTL", body(chunks[at][1]))

    return change


def outside(body: bytes) -> bytes:
    return body[:12] + struct.pack(">I", 1) + body[16:]


@pytest.mark.parametrize("claimed", [1, 2, 3, 4, 5_000, 2**32 - 1])
def test_apng_shows_its_actual_frames_whatever_frame_count_it_declares(claimed: int) -> None:
    assert shown(changed(WITH_STAND_IN, claiming(claimed))) == [FIRST, SECOND, THIRD]


def test_apng_that_declares_no_frames_shows_its_still_image() -> None:
    assert shown(changed(WITH_STAND_IN, claiming(0))) == [STILL]


# The chunks are IHDR acTL IDAT, then fcTL and fdAT three times, in the file with a stand-in.
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(without(b"fcTL", 0), [STILL], id="pixels before any frame"),
        pytest.param(without(b"fdAT", 0), [STILL], id="first frame without pixels"),
        pytest.param(swapped(b"fcTL", 0, 1), [STILL], id="first frame's chunks swapped"),
        pytest.param(without(b"fcTL", 1), [FIRST], id="pixels of the second frame in the first"),
        pytest.param(without(b"fdAT", 1), [FIRST], id="second frame without pixels"),
        pytest.param(swapped(b"fdAT", 1, 2), [FIRST], id="pixels of two frames swapped"),
        pytest.param(swapped(b"fcTL", 1, 2), [FIRST], id="controls of two frames swapped"),
        pytest.param(
            without(b"fcTL", 2), [FIRST, SECOND], id="pixels of the third frame in the second"
        ),
        pytest.param(without(b"fdAT", 2), [FIRST, SECOND], id="last frame without pixels"),
        pytest.param(swapped(b"fcTL", 2, 1), [FIRST, SECOND], id="last frame's chunks swapped"),
        pytest.param(replaced(1, outside), [FIRST], id="frame outside of the canvas"),
        pytest.param(replaced(1, lambda body: body[:20]), [FIRST], id="short control"),
        pytest.param(replaced(2, lambda _: b""), [FIRST, SECOND], id="empty control"),
    ],
)
def test_faulty_apng_shows_frames_before_the_first_fault_or_else_its_still_image(
    change: Callable[[Chunks], None], expected: list[tuple[int, ...]]
) -> None:
    result = convert_image(changed(WITH_STAND_IN, change))
    assert [colour for colour, _ in timeline(result.data)] == expected
    assert result.frames == len(expected)
    assert (result.width, result.height) == SIZE


def test_faulty_apng_keeps_delays_of_frames_before_the_fault() -> None:
    data = changed(WITH_STAND_IN, without(b"fdAT", 2))
    assert timeline(convert_image(data).data) == [(FIRST, FRAME_MS), (SECOND, FRAME_MS)]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(replaced(0, outside), id="outside of the canvas"),
        pytest.param(
            replaced(0, lambda body: body[:4] + struct.pack(">II", 10, 10) + body[12:]),
            id="smaller than the canvas",
        ),
        pytest.param(replaced(0, lambda body: b"\0\0\0\7" + body[4:]), id="wrong number"),
    ],
)
def test_apng_with_faulty_first_frame_control_shows_only_its_still_image(
    change: Callable[[Chunks], None],
) -> None:
    """Its pixels are whole, whatever the control chunk before them says."""
    assert shown(changed(FROM_STILL, change)) == [FIRST]


def test_apng_frame_with_pixel_data_after_the_fault_is_not_shown() -> None:
    """The second frame's data in two chunks, of which the last changed places with a control."""
    chunks = chunks_of(WITH_STAND_IN)
    at = places(chunks, b"fdAT")[1]
    pixels = chunks[at][1][4:]
    half = len(pixels) // 2
    rest = [(b"fcTL", struct.pack(">I", 5) + chunks[at + 1][1][4:])]
    chunks[at:] = [
        (b"fdAT", struct.pack(">I", 3) + pixels[:half]),
        *rest,
        (b"fdAT", struct.pack(">I", 4) + pixels[half:]),
        (b"IEND", b""),
    ]
    assert shown(of_chunks(chunks)) == [FIRST]


def test_duplicate_or_late_apng_animation_header_is_ignored() -> None:
    chunks = chunks_of(WITH_STAND_IN)
    again = (b"acTL", struct.pack(">II", 1, 7))
    plays = convert_image(of_chunks([*chunks[:2], again, *chunks[2:]]))
    assert plays == convert_image(WITH_STAND_IN)
    late = [chunks[0], *chunks[2:3], chunks[1], *chunks[3:]]
    assert shown(of_chunks(late)) == [STILL]


@pytest.mark.parametrize("body", [b"", b"\0" * 7, b"\0\0\0\1" * 3])
def test_apng_animation_header_of_wrong_length_is_ignored(body: bytes) -> None:
    chunks = chunks_of(WITH_STAND_IN)
    chunks[1] = (b"acTL", body)
    assert shown(of_chunks(chunks)) == [STILL]
