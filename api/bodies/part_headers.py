"""Parses the field name and the file name in the headers of a part of a multipart body.

RFC 7578 requires raw UTF-8 in a file name, but some HTTP libraries use other encodings. A file name
may be sent as `filename*` (RFC 8187), in numbered sections of `filename*` (RFC 2231) or as encoded
words (RFC 2047). It may contain backslash escapes or Latin-1 bytes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.errors import HeaderParseError
from email.header import decode_header
from encodings import normalize_encoding
from encodings.aliases import aliases
from urllib.parse import quote, unquote_to_bytes

_PARAMETER = re.compile(r';[ \t]*([^\s=;"]+)[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|[^;]*)', re.DOTALL)
_ESCAPED_CHARACTER = re.compile(r'\\(["\\])')
_NUMBERED_SECTION = re.compile(r"filename\*([0-9]{1,3})(\*?)")
_ENCODED_WORD = r"=\?[^?\s]+\?[bq]\?[^?]*\?="
_ENCODED_WORDS = re.compile(rf"{_ENCODED_WORD}(?:[ \t]+{_ENCODED_WORD})*", re.IGNORECASE)
# The charsets that may be used in the headers of a part. Unknown charsets are never looked up,
# because Python caches each name, so callers could fill the memory.
_CHARSETS = frozenset({*aliases, *aliases.values()})


@dataclass(frozen=True)
class PartHead:
    """``filename`` is ``None`` for a part that isn't a file."""

    name: str | None = None
    filename: str | None = None
    transfer_encoding: bytes = b""


@dataclass
class PartHeaders:
    """``on_head`` is called when all headers of a part have arrived."""

    on_head: Callable[[PartHead], None]
    _headers: dict[bytes, bytes] = field(default_factory=dict)
    _name: bytearray = field(default_factory=bytearray)
    _value: bytearray = field(default_factory=bytearray)

    def callbacks(self) -> dict[str, Callable[..., None]]:
        return {
            "on_part_begin": self._headers.clear,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
        }

    def _end_header(self) -> None:
        self._headers[bytes(self._name).lower()] = bytes(self._value).strip()
        self._name.clear()
        self._value.clear()

    def _end_headers(self) -> None:
        name, filename = read_disposition(self._headers.get(b"content-disposition", b""))
        encoding = self._headers.get(b"content-transfer-encoding", b"").lower()
        self.on_head(PartHead(name, filename, encoding))


def read_disposition(header: bytes) -> tuple[str | None, str | None]:
    """Return the field name and the file name in a ``Content-Disposition`` header."""
    pairs = _PARAMETER.findall(header.decode("latin-1"))
    parameters = {name.lower(): _unquote(value) for name, value in pairs}
    name = parameters.get("name")
    return None if name is None else _decode_raw(name), _decode_filename(parameters)


def _unquote(value: str) -> str:
    value = value.strip()
    if value.startswith('"'):
        return _ESCAPED_CHARACTER.sub(r"\1", value.removeprefix('"').removesuffix('"'))
    return value


def _decode_filename(parameters: Mapping[str, str]) -> str | None:
    """Prefer ``filename*`` to ``filename``, as RFC 6266 recommends."""
    plain = parameters.get("filename")
    extended = _join_extended_value(parameters)
    if extended is None:
        return None if plain is None else _decode_plain(plain)
    charset, data = _split_extended(extended)
    decoded = _decode(data, charset)
    if decoded:
        return decoded
    return _decode_plain(plain) if plain else _decode_bytes(data)


def _join_extended_value(parameters: Mapping[str, str]) -> str | None:
    """Return the value of ``filename*``, or join ``filename*0``, ``filename*1``, …"""
    extended = parameters.get("filename*")
    if extended is not None:
        return extended
    sections = {
        int(match[1]): value if match[2] else quote(value, safe="'", encoding="latin-1")
        for name, value in parameters.items()
        if (match := _NUMBERED_SECTION.fullmatch(name))
    }
    return "".join(sections[number] for number in sorted(sections)) or None


def _split_extended(value: str) -> tuple[str, bytes]:
    """Split ``charset'language'percent-encoded``."""
    charset, _, rest = value.partition("'")
    _, mark, encoded = rest.partition("'")
    if not mark:
        charset = "utf-8"
        encoded = value
    return charset, unquote_to_bytes(encoded.encode("latin-1"))


def _decode_plain(value: str) -> str:
    # Decode quotation marks and line breaks, because browsers percent-encode them in file names.
    for escape, character in (("%22", '"'), ("%0D", "\r"), ("%0A", "\n")):
        value = value.replace(escape, character)
    return _ENCODED_WORDS.sub(lambda words: _decode_words(words[0]), _decode_raw(value))


def _decode_words(words: str) -> str:
    """Return malformed encoded words unchanged."""
    try:
        chunks = decode_header(words)
    except (HeaderParseError, ValueError):
        return words
    return "".join(
        chunk if isinstance(chunk, str) else _decode(chunk, charset or "") or _decode_bytes(chunk)
        for chunk, charset in chunks
    )


def _decode_raw(value: str) -> str:
    return _decode_bytes(value.encode("latin-1"))


def _decode_bytes(data: bytes) -> str:
    return _decode(data, "utf-8") or data.decode("cp1252", "replace")


def _decode(data: bytes, charset: str) -> str | None:
    """Return ``None`` for an unknown charset or invalid bytes."""
    codec = normalize_encoding(charset).lower()
    if codec not in _CHARSETS:
        return None
    try:
        text = data.decode(codec)
        text.encode()  # UTF-7 can contain lone surrogates, for which ``encode`` fails.
    except (LookupError, ValueError):
        return None
    return text
