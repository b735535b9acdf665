"""Key phrases: frequent, early, in title and headings, spread over the post, and names.

The features are those of statistical key phrase extraction (KP-Miner, YAKE), on stems.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from math import log1p, sqrt
from pathlib import Path
from typing import NamedTuple

from services.composer.offline.document import Document, Word, get_tokenizer
from services.composer.rules import MAX_TAG_CHARACTERS, MIN_TAGS, fit_tags
from services.composer.text.post import PlainPost
from services.composer.text.words import find_content_words, split_words

_WANTED = 6
# Some fold to one.
_MAX_CANDIDATES = 20
# In posts of few words.
_MAX_FORMS = 100
_OF_TITLE = 1.5
_OF_HEADING = 1.2
_OF_NAME = 1.3
# Where articles are written, a noun has one now and then.
_OF_ARTICLE = 1.4
_HAS_ARTICLES = frozenset({"en", "de", "fr", "es", "it", "pt", "nl"})
_MAX_SCORED_LETTERS = 12
_MIN_PHRASE_COUNT = 2
# A phrase is a tag of its own if its words mostly come in it.
_COHESION = 0.45


def _words(file_name: str) -> frozenset[str]:
    return frozenset(Path(__file__).with_name(file_name).read_text("utf-8").split())


_ARTICLES = _words("articles.txt")
# Quantity and time: frequent words that no post is about.
_MEASURES = _words("measures.txt")

FoldedPhrase = tuple[str, ...]


class _Spot(NamedTuple):
    # The number of the text; title, headings and sentences count together.
    number: int
    # The word before, if it isn't the text's first.
    before: Word | None
    in_sentence: bool


@dataclass(slots=True)
class _Found:
    # The number of the text that has it first.
    first: int
    last: int = -1
    count: int = 0
    texts: int = 0
    names: int = 0
    articles: int = 0
    noun: bool = True
    # How often it is written how; and within sentences, where only names have capitals.
    surfaces: Counter[str] = field(default_factory=Counter)
    within: Counter[str] = field(default_factory=Counter)


def extract_tags(plain: PlainPost, document: Document) -> tuple[str, ...]:
    found = _phrases(document)
    scores = _scores(found, document)
    ranked = sorted(scores, key=lambda key: (-scores[key], found[key].first, key))
    chosen = _without_parts(ranked, found)
    shown = (_shown(key, found) for key in chosen)
    tags = fit_tags(islice(shown, _MAX_CANDIDATES))[:_WANTED]
    if len(tags) >= MIN_TAGS:
        return tags
    # Posts of few words: the longest ones first, whatever they are.
    texts = (plain.title, *plain.paragraphs[:50], *plain.headings[:50])
    words = {word for text in texts for word in split_words(text[:2000])}
    longest = sorted(words, key=lambda word: (not word[0].isalpha(), -min(len(word), 20), word))
    short = (word for word in (*tags, *longest) if len(word) <= MAX_TAG_CHARACTERS)
    tokenize = get_tokenizer(document.language)
    # Each word has one form here.
    forms: dict[FoldedPhrase, str] = {}
    for word in islice(short, _MAX_FORMS):
        forms.setdefault(tuple(each.key or each.plain for each in tokenize(word)), word)
    tags = fit_tags(forms.values())[:MIN_TAGS]
    enough = find_content_words(plain, MIN_TAGS)
    if len(tags) >= min(MIN_TAGS, len(enough)):
        return tags
    # Other forms of the same words, or words of a long post that begins with few.
    return fit_tags((*tags, *longest, *sorted(enough)))[:MIN_TAGS]


def _phrases(document: Document) -> dict[FoldedPhrase, _Found]:
    found: dict[FoldedPhrase, _Found] = {}
    between = "" if document.language in {"zh", "ja"} else " "
    texts = (document.title, *document.headings, *(s.words for s in document.sentences))
    for number, words in enumerate(texts):
        for place, word in enumerate(words):
            if not word.key:
                continue
            spot = _Spot(
                number, words[place - 1] if place else None, number > len(document.headings)
            )
            _add(found, (word.key,), word.surface, spot).noun = word.noun
            after = words[place + 1] if place + 1 < len(words) else word
            if after.key and after is not word:
                surface = f"{word.surface}{between}{after.surface}"
                pair = _add(found, (word.key, after.key), surface, spot)
                pair.noun = word.noun and after.noun
    return found


def _add(found: dict[FoldedPhrase, _Found], key: FoldedPhrase, surface: str, spot: _Spot) -> _Found:
    entry = found.setdefault(key, _Found(spot.number))
    entry.count += 1
    entry.texts += entry.last != spot.number
    entry.last = spot.number
    entry.surfaces[surface] += 1
    if spot.before:
        if spot.in_sentence:
            entry.within[surface] += 1
        # A capital within a sentence, as of `iPhone`; the title's say nothing.
        is_name = surface[0].isupper() or (len(key) == 1 and surface != surface.lower())
        entry.names += spot.number > 0 and is_name
        entry.articles += spot.before.plain in _ARTICLES
    return entry


def _scores(found: dict[FoldedPhrase, _Found], document: Document) -> dict[FoldedPhrase, float]:
    """The scores of those phrases that can be tags."""
    scores: dict[FoldedPhrase, float] = {}
    titled = _keys(document.title)
    headed = set().union(*map(_keys, document.headings))
    for key, entry in found.items():
        rarest = min(found[part,].count for part in key)
        is_loose = entry.count < max(_MIN_PHRASE_COUNT, _COHESION * rarest)
        if not entry.noun or (len(key) > 1 and is_loose):
            continue
        shown = _shown(key, found)
        if _MEASURES.issuperset(shown.casefold().split()):
            continue
        score = entry.count * log1p(entry.texts) * sqrt(min(len(shown), _MAX_SCORED_LETTERS))
        score *= 1.0 + 1.0 / (1.0 + entry.first / 3.0)
        score *= _OF_TITLE if key in titled else 1.0
        score *= _OF_HEADING if key in headed else 1.0
        score *= _of_noun(entry, document.language)
        if score:
            scores[key] = score
    return scores


def _of_noun(entry: _Found, language: str) -> float:
    if language == "de":
        return 1.0 if entry.names else 0.0
    if entry.names > entry.count / 2:
        return _OF_NAME
    return _OF_ARTICLE if entry.articles and language in _HAS_ARTICLES else 1.0


def _keys(words: Sequence[Word]) -> set[FoldedPhrase]:
    """The keys of single words and of pairs."""
    keys = [word.key for word in words]
    return {(key,) for key in keys} | set(pairwise(keys))


def _without_parts(
    ranked: list[FoldedPhrase], found: dict[FoldedPhrase, _Found]
) -> Iterator[FoldedPhrase]:
    """A word isn't a tag beside a phrase that often holds it, nor a phrase beside its like."""
    often: dict[str, int] = {}
    for key in ranked:
        if len(key) > 1:
            often.update({part: max(often.get(part, 0), found[key].count) for part in key})
    taken: set[str] = set()
    for key in ranked:
        if len(key) == 1 and often.get(key[0], 0) >= _COHESION * found[key].count:
            continue
        if taken.isdisjoint(key):
            taken.update(key)
            yield key


def _shown(key: FoldedPhrase, found: dict[FoldedPhrase, _Found]) -> str:
    """The phrase as the post mostly writes it within sentences.

    Where it only begins them, or stands in headings, its first word has the capital that this word
    has elsewhere.
    """
    entry = found[key]
    if entry.within or len(key) == 1:
        return _commonest(entry.within or entry.surfaces)
    surface = _commonest(entry.surfaces)
    first = found[key[:1]]
    if first.within and _commonest(first.within).islower():
        return surface[:1].lower() + surface[1:]
    return surface


def _commonest(counts: dict[str, int]) -> str:
    return min(counts, key=lambda text: (-counts[text], text != text.lower(), text))
