"""Estimates how many tokens a text has, and shortens texts to a maximum number of tokens."""

from collections.abc import Iterator

# The ratios of characters to tokens are low, so that the number of tokens is overestimated for most
# language models.
_ASCII_CHARACTERS_PER_TOKEN = 3
# In Cyrillic text, a token has about two bytes of UTF-8. In Chinese text, a token has more than two
# bytes of UTF-8. In rare scripts, a token has fewer than two bytes.
_OTHER_BYTES_PER_TOKEN = 2


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a text has, with a result that is rather too high than too low."""
    ascii_count = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "replace")) - ascii_count
    return ascii_count // _ASCII_CHARACTERS_PER_TOKEN + other_bytes // _OTHER_BYTES_PER_TOKEN + 1


def truncate_to_tokens(text: str, max_tokens: int) -> str:
    """Return at most the first ``max_tokens`` tokens of a text."""
    while (size := estimate_tokens(text)) > max_tokens:
        text = text[: max(len(text) * max_tokens // size - 1, 0)]
    return text


def split_by_tokens(text: str, max_tokens: int) -> Iterator[str]:
    """Yield pieces of a text with at most ``max_tokens`` tokens each.

    If possible, each piece of the text ends between two words.
    """
    start = 0
    while start < len(text):
        # Estimate the number of tokens only for the longest possible piece, because estimates for
        # the whole remaining text would be slow.
        window = text[start : start + max_tokens * _ASCII_CHARACTERS_PER_TOKEN]
        piece = truncate_to_tokens(window, max_tokens) or window[:1]
        if start + len(piece) < len(text):
            words, space, _ = piece.rpartition(" ")
            piece = words + space if len(words) > len(piece) // 2 else piece
        if piece.strip():
            yield piece.strip()
        start += len(piece)
