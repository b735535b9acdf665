"""Any script in Latin letters."""

from functools import cache
from types import ModuleType


def transliterate(text: str) -> str:
    """ASCII alone; the words of Chinese and Japanese text apart."""
    if text.isascii():
        return text
    return str(_anyascii().anyascii(text))


@cache
def _anyascii() -> ModuleType:
    # Its tables are read as they are needed.
    import anyascii

    return anyascii
