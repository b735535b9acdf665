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
FULL_CANVAS = (0, 0, *SIZE)
STILL_COLOUR, FIRST_COLOUR, SECOND_COLOUR, THIRD_COLOUR = (
    (level, 9, 60, 255) for level in (10, 80, 150, 220)
)
FRAMES = [Rectangle(FULL_CANVAS, colour) for colour in (FIRST_COLOUR, SECOND_COLOUR, THIRD_COLOUR)]
FRAME_MS = 100
APNG_WITH_STAND_IN = apng(SIZE, FRAMES, stand_in=STILL_COLOUR)
APNG_WITHOUT_STAND_IN = apng(SIZE, FRAMES)

Chunks = list[tuple[bytes, bytes]]


def split_chunks(data: bytes) -> Chunks:
    chunks = list[tuple[bytes, bytes]]()
    position = len(PNG_SIGNATURE)
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        chunks.append(
            (data[position + 4 : position + 8], data[position + 8 : position + 8 + length])
        )
        position += 12 + length
    return chunks


def join_chunks(chunks: Chunks) -> bytes:
    return PNG_SIGNATURE + b"".join(chunk(name, body) for name, body in chunks)


def find_positions(chunks: Chunks, name: bytes) -> Sequence[int]:
    return [position for position, (chunk_name, _) in enumerate(chunks) if chunk_name == name]


def list_colours(data: bytes) -> list[tuple[int, ...]]:
    result = convert_image(data)
    return [colour for colour, _ in timeline(result.data)]


def change_chunks(data: bytes, change: Callable[[Chunks], None]) -> bytes:
    chunks = split_chunks(data)
    change(chunks)
    return join_chunks(chunks)


def declare_frames(frames: int) -> Callable[[Chunks], None]:
    def change(chunks: Chunks) -> None:
        (position,) = find_positions(chunks, b"acTL")
        chunks[position] = (b"acTL", struct.pack(">II", frames, 0))

    return change


def delete_chunk(name: bytes, number: int) -> Callable[[Chunks], None]:
    def change(chunks: Chunks) -> None:
        del chunks[find_positions(chunks, name)[number]]

    return change


def swap_chunks(name: bytes, number: int, distance: int) -> Callable[[Chunks], None]:
    def change(chunks: Chunks) -> None:
        position = find_positions(chunks, name)[number]
        chunks[position], chunks[position + distance] = (
            chunks[position + distance],
            chunks[position],
        )

    return change


def replace_control(number: int, change_body: Callable[[bytes], bytes]) -> Callable[[Chunks], None]:
    """Return a function that changes the body of the control chunk of frame ``number``."""

    def change(chunks: Chunks) -> None:
        position = find_positions(chunks, b"fcTL")[number]
        chunks[position] = (b"fcTL", change_body(chunks[position][1]))

    return change


def move_outside_canvas(body: bytes) -> bytes:
    return body[:12] + struct.pack(">I", 1) + body[16:]


@pytest.mark.parametrize("declared", [1, 2, 3, 4, 5_000, 2**32 - 1])
def test_apng_shows_its_actual_frames_whatever_frame_count_it_declares(declared: int) -> None:
    assert list_colours(change_chunks(APNG_WITH_STAND_IN, declare_frames(declared))) == [
        FIRST_COLOUR,
        SECOND_COLOUR,
        THIRD_COLOUR,
    ]


def test_apng_that_declares_no_frames_shows_its_still_image() -> None:
    assert list_colours(change_chunks(APNG_WITH_STAND_IN, declare_frames(0))) == [STILL_COLOUR]


# The chunks are IHDR acTL IDAT, then fcTL and fdAT three times, in the file with a stand-in.
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(delete_chunk(b"fcTL", 0), [STILL_COLOUR], id="pixels before any frame"),
        pytest.param(delete_chunk(b"fdAT", 0), [STILL_COLOUR], id="first frame without pixels"),
        pytest.param(swap_chunks(b"fcTL", 0, 1), [STILL_COLOUR], id="first frame's chunks swapped"),
        pytest.param(
            delete_chunk(b"fcTL", 1), [FIRST_COLOUR], id="pixels of the second frame in the first"
        ),
        pytest.param(delete_chunk(b"fdAT", 1), [FIRST_COLOUR], id="second frame without pixels"),
        pytest.param(swap_chunks(b"fdAT", 1, 2), [FIRST_COLOUR], id="pixels of two frames swapped"),
        pytest.param(
            swap_chunks(b"fcTL", 1, 2), [FIRST_COLOUR], id="controls of two frames swapped"
        ),
        pytest.param(
            delete_chunk(b"fcTL", 2),
            [FIRST_COLOUR, SECOND_COLOUR],
            id="pixels of the third frame in the second",
        ),
        pytest.param(
            delete_chunk(b"fdAT", 2), [FIRST_COLOUR, SECOND_COLOUR], id="last frame without pixels"
        ),
        pytest.param(
            swap_chunks(b"fcTL", 2, 1),
            [FIRST_COLOUR, SECOND_COLOUR],
            id="last frame's chunks swapped",
        ),
        pytest.param(
            replace_control(1, move_outside_canvas),
            [FIRST_COLOUR],
            id="frame outside of the canvas",
        ),
        pytest.param(
            replace_control(1, lambda body: body[:20]), [FIRST_COLOUR], id="short control"
        ),
        pytest.param(
            replace_control(2, lambda _: b""), [FIRST_COLOUR, SECOND_COLOUR], id="empty control"
        ),
    ],
)
def test_faulty_apng_shows_frames_before_the_first_fault_or_else_its_still_image(
    change: Callable[[Chunks], None], expected: list[tuple[int, ...]]
) -> None:
    result = convert_image(change_chunks(APNG_WITH_STAND_IN, change))
    assert [colour for colour, _ in timeline(result.data)] == expected
    assert result.frames == len(expected)
    assert (result.width, result.height) == SIZE


def test_faulty_apng_keeps_delays_of_frames_before_the_fault() -> None:
    data = change_chunks(APNG_WITH_STAND_IN, delete_chunk(b"fdAT", 2))
    assert timeline(convert_image(data).data) == [
        (FIRST_COLOUR, FRAME_MS),
        (SECOND_COLOUR, FRAME_MS),
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(replace_control(0, move_outside_canvas), id="outside of the canvas"),
        pytest.param(
            replace_control(0, lambda body: body[:4] + struct.pack(">II", 10, 10) + body[12:]),
            id="smaller than the canvas",
        ),
        pytest.param(replace_control(0, lambda body: b"\0\0\0\7" + body[4:]), id="wrong number"),
    ],
)
def test_apng_with_faulty_first_frame_control_shows_only_its_still_image(
    change: Callable[[Chunks], None],
) -> None:
    """The first frame has a faulty control chunk, but complete pixels."""
    assert list_colours(change_chunks(APNG_WITHOUT_STAND_IN, change)) == [FIRST_COLOUR]


def test_apng_frame_with_pixel_data_after_the_fault_is_not_shown() -> None:
    """The third frame's control chunk is between the two pixel data chunks of the second frame."""
    chunks = split_chunks(APNG_WITH_STAND_IN)
    position = find_positions(chunks, b"fdAT")[1]
    pixels = chunks[position][1][4:]
    half = len(pixels) // 2
    next_control = [(b"fcTL", struct.pack(">I", 5) + chunks[position + 1][1][4:])]
    chunks[position:] = [
        (b"fdAT", struct.pack(">I", 3) + pixels[:half]),
        *next_control,
        (b"fdAT", struct.pack(">I", 4) + pixels[half:]),
        (b"IEND", b""),
    ]
    assert list_colours(join_chunks(chunks)) == [FIRST_COLOUR]


def test_duplicate_or_late_apng_animation_header_is_ignored() -> None:
    chunks = split_chunks(APNG_WITH_STAND_IN)
    second_header = (b"acTL", struct.pack(">II", 1, 7))
    result = convert_image(join_chunks([*chunks[:2], second_header, *chunks[2:]]))
    assert result == convert_image(APNG_WITH_STAND_IN)
    late_header_chunks = [chunks[0], *chunks[2:3], chunks[1], *chunks[3:]]
    assert list_colours(join_chunks(late_header_chunks)) == [STILL_COLOUR]


@pytest.mark.parametrize("body", [b"", b"\0" * 7, b"\0\0\0\1" * 3])
def test_apng_animation_header_of_wrong_length_is_ignored(body: bytes) -> None:
    chunks = split_chunks(APNG_WITH_STAND_IN)
    chunks[1] = (b"acTL", body)
    assert list_colours(join_chunks(chunks)) == [STILL_COLOUR]
