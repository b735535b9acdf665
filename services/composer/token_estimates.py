"""Estimates how many tokens a text has for a language model."""

from collections.abc import Iterator

# The estimates are high, because each model counts tokens differently.
_ASCII_CHARACTERS_A_TOKEN = 3
# Cyrillic has about two bytes of UTF-8 per token, Chinese has more, rare scripts have fewer.
_OTHER_BYTES_A_TOKEN = 2


def estimate_tokens(text: str) -> int:
    """Return an upper estimate of the number of tokens."""
    ascii_only = len(text.encode("ascii", "ignore"))
    others = len(text.encode("utf-8", "replace")) - ascii_only
    return ascii_only // _ASCII_CHARACTERS_A_TOKEN + others // _OTHER_BYTES_A_TOKEN + 1


def truncate_to_tokens(text: str, max_tokens: int) -> str:
    """Return the beginning of a text, with at most ``max_tokens`` tokens."""
    while (size := estimate_tokens(text)) > max_tokens:
        text = text[: max(len(text) * max_tokens // size - 1, 0)]
    return text


def split_by_tokens(text: str, max_tokens: int) -> Iterator[str]:
    """Yield pieces of a text with at most ``max_tokens`` tokens, cut between words if possible."""
    start = 0
    while start < len(text):
        # A piece can't be longer than this, so a long text is not measured repeatedly.
        window = text[start : start + max_tokens * _ASCII_CHARACTERS_A_TOKEN]
        piece = truncate_to_tokens(window, max_tokens) or window[:1]
        if start + len(piece) < len(text):
            words, space, _ = piece.rpartition(" ")
            piece = words + space if len(words) > len(piece) // 2 else piece
        if piece.strip():
            yield piece.strip()
        start += len(piece)
