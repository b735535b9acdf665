"""Estimates the number of tokens in a text, and shortens texts to a maximum number of tokens."""

from collections.abc import Iterator

# The ratios of characters to tokens are low, so that the number of tokens is overestimated for most
# language models.
_ASCII_CHARACTERS_PER_TOKEN = 3
# A token has about two bytes of UTF-8 in Cyrillic text, more in Chinese text, and fewer in rare
# scripts.
_OTHER_BYTES_PER_TOKEN = 2


def estimate_tokens(text: str) -> int:
    """Return a high estimate."""
    ascii_count = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "replace")) - ascii_count
    return ascii_count // _ASCII_CHARACTERS_PER_TOKEN + other_bytes // _OTHER_BYTES_PER_TOKEN + 1


def truncate_to_tokens(text: str, max_tokens: int) -> str:
    while (size := estimate_tokens(text)) > max_tokens:
        text = text[: max(len(text) * max_tokens // size - 1, 0)]
    return text


def split_by_tokens(text: str, max_tokens: int) -> Iterator[str]:
    """Split a text into pieces of at most ``max_tokens`` tokens, if possible between words."""
    start = 0
    while start < len(text):
        # Estimate the tokens of the longest possible piece only, because counting the tokens of all
        # remaining text would be slow.
        window = text[start : start + max_tokens * _ASCII_CHARACTERS_PER_TOKEN]
        piece = truncate_to_tokens(window, max_tokens) or window[:1]
        if start + len(piece) < len(text):
            words, space, _ = piece.rpartition(" ")
            piece = words + space if len(words) > len(piece) // 2 else piece
        if piece.strip():
            yield piece.strip()
        start += len(piece)
