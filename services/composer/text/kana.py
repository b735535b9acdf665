"""Spells kana in Latin letters by Hepburn, long vowels without their marks: `Tokyo`, `ramen`."""

import re
from functools import cache
from pathlib import Path

_KANA = re.compile("[\u30a1-\u30ff]+|[\u3041-\u309f\u30fc]+")
# Katakana stand so far behind the Hiragana of the same sound.
_BEHIND = 0x60
_KATAKANA = re.compile("[\u30a1-\u30f6]")
_DOUBLING, _LONG = "っ", "ー"
# The vowels that a vowel before them makes long.
_LENGTHENED = {"o": "うお", "u": "う"}


def spell_kana(text: str) -> str:
    """The text with each run of Hiragana or Katakana spelled, and set apart by spaces."""
    return _KANA.sub(lambda run: f" {hepburn(run[0])} ", text)


def hepburn(kana: str, *, verb: bool = False) -> str:
    """Other characters stay as they are. The last `u` of a verb is a sound of its own: `omou`."""
    plain = _KATAKANA.sub(lambda found: chr(ord(found[0]) - _BEHIND), kana)
    spelled = ""
    at, doubled = 0, False
    while at < len(plain):
        character, pair = plain[at], plain[at : at + 2]
        known = pair if pair in _syllables() else character
        syllable = _syllables().get(known, known)
        at += len(known)
        if character == _DOUBLING:
            doubled = True
            continue
        ends_verb = verb and at == len(plain)
        is_long = character in _LENGTHENED.get(spelled[-1:], "") and len(syllable) == 1
        if character == _LONG or (is_long and not ends_verb):
            continue
        if doubled and syllable[0] not in "aiueon":
            spelled += "t" if syllable.startswith("ch") else syllable[0]
        spelled += syllable
        doubled = False
    return spelled


@cache
def _syllables() -> dict[str, str]:
    lines = Path(__file__).with_name("kana.txt").read_text("utf-8").split()
    return dict(line.split("=") for line in lines)
