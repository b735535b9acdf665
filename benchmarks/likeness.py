"""How like what was written is to what a person wrote: ROUGE-L (Lin 2004), precision of tags."""

import re
from collections.abc import Sequence

from services.composer.offline.tokenizers import tokenizer
from services.composer.text.words import UNSPACED, fold_word, words_of

_UNSPACED = re.compile(f"[{UNSPACED}]")


def rouge_l(written: str, reference: str) -> float:
    """F1 of the longest common subsequence of units."""
    mine, theirs = units(written), units(reference)
    common = _common_subsequence(mine, theirs)
    return 2 * common / (len(mine) + len(theirs)) if common else 0.0


def precision(tags: Sequence[str], reference: Sequence[str], language: str) -> float:
    """The share of tags that a person also gave, whatever their grammatical form."""
    expected = {_form(tag, language) for tag in reference}
    return sum(_form(tag, language) in expected for tag in tags) / len(tags) if tags else 0.0


def units(text: str) -> list[str]:
    """Words, folded; characters where a script puts no space between words."""
    found: list[str] = []
    for word in words_of(fold_word(text)):
        found += list(word) if _UNSPACED.search(word) else [word]
    return found


def _common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    before = [0] * (len(other) + 1)
    for unit in one:
        row = [0]
        for index, candidate in enumerate(other):
            longest = before[index] + 1 if unit == candidate else max(row[-1], before[index + 1])
            row.append(longest)
        before = row
    return before[-1]


def _form(tag: str, language: str) -> str:
    if language == "zh":
        return fold_word(tag)
    return " ".join(word.key or fold_word(word.surface) for word in tokenizer(language)(tag))
