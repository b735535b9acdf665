import re

from services.composer.offline.document import Document
from services.composer.offline.tokenizers import japanese_readings
from services.composer.post import PlainPost
from services.composer.rules import fit_slug
from services.composer.text.characters import transliterate

_MAX_SLUG_SOURCE_CHARACTERS = 400
# The plain letters with which writers of these languages replace their own.
_SPELLED = {
    "de": str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"}),
    "da": str.maketrans({"å": "aa", "ø": "oe", "æ": "ae", "Å": "Aa", "Ø": "Oe", "Æ": "Ae"}),
}

# Katakana of one syllable in two letters: `kyo`, not `kiyo`.
_GLIDE = re.compile("([キギシジチニヒビピミリ])([ャュョ])")
_ONSETS = {"シ": "sh", "ジ": "j", "チ": "ch"}
_VOWELS = {"ャ": "a", "ュ": "u", "ョ": "o"}


def slug_of(plain: PlainPost, document: Document, content_hash: str) -> str:
    """The slug of the first of title, headings and paragraphs that has words."""
    nameless = fit_slug("", content_hash)
    language = document.language
    for source in (plain.title, *plain.headings[:10], *plain.paragraphs[:10]):
        text = source[:_MAX_SLUG_SOURCE_CHARACTERS]
        spelled = text.translate(_SPELLED.get(language, {}))
        if language == "zh":
            from pypinyin import lazy_pinyin
            from rjieba import cut

            spelled = "-".join("".join(lazy_pinyin(word)) for word in cut(text))
        elif language == "ja":
            spelled = _GLIDE.sub(_contracted, japanese_readings(text)) or text
        if (slug := fit_slug(spelled, content_hash)) != nameless:
            return slug
    return nameless


def _contracted(match: re.Match[str]) -> str:
    onset = _ONSETS.get(match[1]) or f"{transliterate(match[1])[0]}y"
    return onset + _VOWELS[match[2]]
