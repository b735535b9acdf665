"""The texts of a PNG, for those that say how it is turned."""

import zlib

_MAX_TEXT_BYTES = 1024 * 1024


def read_text(name: bytes, body: bytes) -> tuple[str, bytes]:
    """Return the keyword and the value of a tEXt, zTXt or iTXt chunk.

    The value is empty for a chunk that is broken or too long: no picture is refused for its texts.
    """
    keyword, _, value = body.partition(b"\0")
    is_compressed = name == b"zTXt"
    if name == b"iTXt":
        is_compressed = value[:1] == b"\1"
        # A flag and a method, then two texts that end with a zero: language and keyword.
        value = b"\0".join(value[2:].split(b"\0", 2)[2:])
    elif is_compressed:
        value = value[1:]
    return keyword.decode("latin-1"), _decompressed(value) if is_compressed else value


def _decompressed(value: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(value, _MAX_TEXT_BYTES)
    except zlib.error:
        return b""
    return text if stream.eof else b""
