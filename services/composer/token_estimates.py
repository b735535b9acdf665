"""Estimates the number of tokens of a text, and cuts texts to a number of tokens."""

from collections.abc import Iterator

# Each model counts tokens differently, so these ratios are chosen to give high estimates.
_ASCII_CHARACTERS_PER_TOKEN = 3
# Cyrillic has about two bytes of UTF-8 per token. Chinese has more bytes per token, and rare
# scripts have fewer.
_OTHER_BYTES_PER_TOKEN = 2


def estimate_tokens(text: str) -> int:
    """Return an upper estimate of the number of tokens."""
    ascii_count = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "replace")) - ascii_count
    return ascii_count // _ASCII_CHARACTERS_PER_TOKEN + other_bytes // _OTHER_BYTES_PER_TOKEN + 1


def truncate_to_tokens(text: str, max_tokens: int) -> str:
    """Return the beginning of a text, with at most ``max_tokens`` tokens."""
    while (size := estimate_tokens(text)) > max_tokens:
        text = text[: max(len(text) * max_tokens // size - 1, 0)]
    return text


def split_by_tokens(text: str, max_tokens: int) -> Iterator[str]:
    """Yield pieces of a text with at most ``max_tokens`` tokens, cut between words if possible."""
    start = 0
    while start < len(text):
        # Measure only the longest possible piece, so that a long text is not measured repeatedly.
        window = text[start : start + max_tokens * _ASCII_CHARACTERS_PER_TOKEN]
        piece = truncate_to_tokens(window, max_tokens) or window[:1]
        if start + len(piece) < len(text):
            words, space, _ = piece.rpartition(" ")
            piece = words + space if len(words) > len(piece) // 2 else piece
        if piece.strip():
            yield piece.strip()
        start += len(piece)
