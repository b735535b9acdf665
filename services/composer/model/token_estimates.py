"""Estimates tokens, rather too high: each model counts in its own way, and none of them offline."""

from collections.abc import Iterator

_ASCII_CHARACTERS_A_TOKEN = 3
# Two bytes of UTF-8 are one token: Cyrillic is about that, Chinese less, rare scripts more.
_OTHER_BYTES_A_TOKEN = 2


def estimate(text: str) -> int:
    ascii_only = len(text.encode("ascii", "ignore"))
    others = len(text.encode("utf-8", "replace")) - ascii_only
    return ascii_only // _ASCII_CHARACTERS_A_TOKEN + others // _OTHER_BYTES_A_TOKEN + 1


def truncate_to_tokens(text: str, max_tokens: int) -> str:
    """The beginning of a text, of at most `max_tokens` tokens."""
    while (size := estimate(text)) > max_tokens:
        text = text[: max(len(text) * max_tokens // size - 1, 0)]
    return text


def split_by_tokens(text: str, max_tokens: int) -> Iterator[str]:
    """The text in pieces of at most `max_tokens` tokens, cut between words where there are any."""
    at = 0
    while at < len(text):
        # No more than this can fit, so that a long text is not measured again and again.
        window = text[at : at + max_tokens * _ASCII_CHARACTERS_A_TOKEN]
        piece = truncate_to_tokens(window, max_tokens) or window[:1]
        if at + len(piece) < len(text):
            whole, space, _ = piece.rpartition(" ")
            piece = whole + space if len(whole) > len(piece) // 2 else piece
        if piece.strip():
            yield piece.strip()
        at += len(piece)
