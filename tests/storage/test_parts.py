"""Tests files that are stored as several encrypted objects."""

from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import parts
from storage.encryption import ENCRYPTION_OVERHEAD_BYTES, DecryptionFailed
from storage.objects import ObjectMissing, ObjectStore
from storage.parts import PartWriter, StoredFile, part_key

KEY = b"k" * 32
_PIECE_BYTES = 13


class Bucket:
    """An object storage in memory that streams objects in small pieces."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, key: str, data: bytes, _: str) -> None:
        self.objects[key] = data

    def stream(self, key: str, offset: int = 0, length: int = 0) -> Iterator[bytes]:
        if key not in self.objects:
            raise ObjectMissing(key)
        content = self.objects[key][offset : offset + length if length else None]
        for start in range(0, len(content), _PIECE_BYTES):
            yield content[start : start + _PIECE_BYTES]


@pytest.fixture(scope="module", autouse=True)
def _make_parts_small() -> Iterator[None]:
    """Shrink blocks to 10 bytes and parts to 30, so that short contents have several parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "BLOCK_BYTES", 10)
        patch.setattr(parts, "_SEALED_BLOCK_BYTES", 10 + ENCRYPTION_OVERHEAD_BYTES)
        patch.setattr(parts, "PART_BYTES", 30)
        yield


def write_file(content: bytes, bucket: Bucket, prefix: str = "p") -> StoredFile:
    objects = cast("ObjectStore", bucket)
    writer = PartWriter(objects, prefix, KEY)
    writer.write(content)
    writer.close()
    assert writer.size == len(content)
    return StoredFile(objects, prefix, writer.size, KEY)


@given(st.binary(max_size=100), st.lists(st.tuples(st.integers(0, 110), st.integers(0, 60))))
def test_file_stored_in_encrypted_parts_can_be_read_from_any_offset(
    content: bytes, reads: list[tuple[int, int]]
) -> None:
    bucket = Bucket()
    file = write_file(content, bucket)
    assert b"".join(file.stream()) == content
    for offset, count in reads:
        end_of_part = offset - offset % 30 + 30
        assert file.read_at(offset, count) == content[offset : min(offset + count, end_of_part)]
    assert not any(content[:30] in stored for stored in bucket.objects.values() if len(content) > 9)


def test_any_change_to_stored_encrypted_parts_is_detected() -> None:
    bucket = Bucket()
    file = write_file(bytes(range(65)), bucket)
    first_key, second_key = (part_key("p", number) for number in (0, 1))
    original = dict(bucket.objects)
    first_part = original[first_key]
    block_bytes = 10 + ENCRYPTION_OVERHEAD_BYTES
    block_1, block_2, block_3 = (
        first_part[start : start + block_bytes] for start in range(0, 3 * block_bytes, block_bytes)
    )
    changes = [
        {first_key: original[second_key], second_key: first_part},
        {first_key: block_2 + block_1 + block_3},
        {first_key: block_1 + block_1 + block_3},
        {first_key: block_1 + block_2},
        {first_key: first_part[:-1]},
        {first_key: b""},
        *(
            {first_key: _flip_bit(first_part, position)}
            for position in range(0, 3 * block_bytes, 7)
        ),
    ]
    for change in changes:
        bucket.objects = {**original, **change}
        with pytest.raises(DecryptionFailed):
            list(file.stream())
    # Replace the first part of the file with the first part of another file.
    bucket.objects = dict(original)
    other_file = write_file(bytes(65), bucket, prefix="q")
    bucket.objects[first_key] = bucket.objects[part_key("q", 0)]
    with pytest.raises(DecryptionFailed):
        file.read_at(0, 5)
    assert other_file.read_at(0, 5) == bytes(5)


def _flip_bit(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
