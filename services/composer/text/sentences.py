"""Sentences of a text in its language."""

from sentencex import segment


def sentences_of(text: str, language: str) -> list[str]:
    """In their order, white space around them removed."""
    return [stripped for found in segment(language, text) if (stripped := found.strip())]


def whole_sentences(text: str, most: int, language: str = "en") -> str:
    """The first sentences that fit into so many characters; empty if not even one does."""
    end = 0
    for sentence in sentences_of(text[: most + 1 + most], language):
        start = text.index(sentence, end)
        if start + len(sentence) > most:
            break
        end = start + len(sentence)
    return text[:end]
