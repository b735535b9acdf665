"""How like what was written is to what a person wrote: ROUGE-L (Lin 2004), precision of tags."""

import re
from collections.abc import Sequence

from services.composer.offline.tokenizers import tokenizer
from services.composer.text.words import fold_word, words_of

_CHARACTER = re.compile(r"[\u3400-\u9fff]|[^\W_]+")


def rouge_l(written: str, reference: str, language: str) -> float:
    """F1 of the longest common subsequence: of words, in Chinese of characters."""
    mine, theirs = _units(written, language), _units(reference, language)
    common = _common_subsequence(mine, theirs)
    return 2 * common / (len(mine) + len(theirs)) if common else 0.0


def precision(tags: Sequence[str], reference: Sequence[str], language: str) -> float:
    """The share of tags that a person also gave, whatever their grammatical form."""
    expected = {_form(tag, language) for tag in reference}
    return sum(_form(tag, language) in expected for tag in tags) / len(tags) if tags else 0.0


def _units(text: str, language: str) -> list[str]:
    plain = fold_word(text)
    return _CHARACTER.findall(plain) if language == "zh" else words_of(plain)


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
