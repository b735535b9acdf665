"""Estimates the number of tokens in a text, and cuts texts to a number of tokens."""

from collections.abc import Iterator

# Each language model counts tokens differently, so the ratios of characters to tokens are chosen to
# overestimate the number of tokens.
_ASCII_CHARACTERS_PER_TOKEN = 3
# Cyrillic letters have about two bytes of UTF-8 per token. Chinese characters have more than two
# bytes per token, and characters of rare scripts have fewer than two bytes per token.
_OTHER_BYTES_PER_TOKEN = 2


def estimate_tokens(text: str) -> int:
    """Return an upper estimate of how many tokens a text has."""
    ascii_count = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "replace")) - ascii_count
    return ascii_count // _ASCII_CHARACTERS_PER_TOKEN + other_bytes // _OTHER_BYTES_PER_TOKEN + 1


def truncate_to_tokens(text: str, max_tokens: int) -> str:
    """Return the beginning of a text with at most ``max_tokens`` tokens."""
    while (size := estimate_tokens(text)) > max_tokens:
        text = text[: max(len(text) * max_tokens // size - 1, 0)]
    return text


def split_by_tokens(text: str, max_tokens: int) -> Iterator[str]:
    """Yield pieces of a text with at most ``max_tokens`` tokens each.

    If possible, a piece ends between two words.
    """
    start = 0
    while start < len(text):
        # Estimate the tokens of the longest possible piece rather than of the whole text, because
        # repeated estimates of a long text are slow.
        window = text[start : start + max_tokens * _ASCII_CHARACTERS_PER_TOKEN]
        piece = truncate_to_tokens(window, max_tokens) or window[:1]
        if start + len(piece) < len(text):
            words, space, _ = piece.rpartition(" ")
            piece = words + space if len(words) > len(piece) // 2 else piece
        if piece.strip():
            yield piece.strip()
        start += len(piece)
