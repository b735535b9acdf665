"""Japanese text as its grammar has it: its words, their kinds and their readings.

They are those of SudachiPy's small dictionary, which its authors keep up to date.
"""

from functools import cache
from threading import Lock
from typing import Any, NamedTuple

from services.composer.text.characters import CHINESE
from services.composer.text.kana import hepburn

NOUN, VERB = "名詞", "動詞"
# The tokenizer takes 49,149 bytes at most, and refuses what grows beyond 65,535 in the form NFKC;
# no character grows beyond 33.
_MAX_PIECE_CHARACTERS = 1_000
_AUXILIARY, _PARTICLE, _JOINING = "助動詞", "助詞", "接続助詞"
# How the particles sound that are written as other sounds are.
_PARTICLES = {"は": "わ", "へ": "え", "を": "お"}
# Small kana that stand for words in names: the reading tells which.
_READ_BY_NAME = frozenset("ヶヵ")
_ONE_AT_A_TIME = Lock()


class Morpheme(NamedTuple):
    surface: str
    # The form that the dictionary lists.
    lemma: str
    # The part of speech, and which sort of it.
    kind: str
    sort: str
    # In Katakana; for a word that the dictionary lacks the word itself.
    reading: str


def morphemes_of(text: str) -> list[Morpheme]:
    pieces = (
        text[start : start + _MAX_PIECE_CHARACTERS]
        for start in range(0, len(text), _MAX_PIECE_CHARACTERS)
    )
    # Threads can't share a tokenizer at the same time.
    with _ONE_AT_A_TIME:
        return [_morpheme(found) for piece in pieces for found in _tokenizer().tokenize(piece)]


def spell_japanese(text: str) -> str:
    """The words in Latin letters, set apart; one whose reading isn't known stays as it is."""
    spelled = ""
    for word in morphemes_of(text):
        clings = word.kind == _AUXILIARY or word.sort == _JOINING
        spelled += ("" if clings else " ") + _spelled(word)
    return spelled


def _spelled(word: Morpheme) -> str:
    if word.kind == _PARTICLE:
        return hepburn(_PARTICLES.get(word.surface, word.surface))
    by_reading = CHINESE.search(word.surface) or word.surface in _READ_BY_NAME
    return hepburn(word.reading if by_reading else word.surface, verb=word.kind == VERB)


def _morpheme(found: Any) -> Morpheme:
    kind, sort = found.part_of_speech()[:2]
    return Morpheme(found.surface(), found.dictionary_form(), kind, sort, found.reading_form())


@cache
def _tokenizer() -> Any:
    from sudachipy import Dictionary, SplitMode

    return Dictionary(dict="small").tokenizer(SplitMode.B)
