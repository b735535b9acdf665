"""Key phrases: frequent, early, in title and headings, spread over the post, and names.

The features are those of statistical key phrase extraction (KP-Miner, YAKE), on stems.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import log1p, sqrt

from services.composer.offline import cues
from services.composer.offline.document import Document
from services.composer.offline.tokens import Word
from services.composer.post import PlainPost
from services.composer.rules import LEAST_TAGS, fit_tags
from services.composer.words import words_of

_WANTED = 6
_LONGEST_PHRASE = 2
_OF_TITLE = 1.5
_OF_HEADING = 1.2
_OF_NAME = 1.3
# Where articles are written, a noun has one now and then.
_OF_ARTICLE = 1.4
_HAS_ARTICLES = frozenset({"en", "de", "fr", "es", "it", "pt", "nl"})
_MOST_LETTERS = 12
_LEAST_PHRASE_COUNT = 2
# A phrase is a tag of its own if its words mostly come in it.
_COHESION = 0.45

Key = tuple[str, ...]


@dataclass(slots=True)
class _Found:
    count: int = 0
    first: int = 0
    sentences: set[int] = field(default_factory=set)
    surfaces: Counter[str] = field(default_factory=Counter)
    names: int = 0
    articles: int = 0
    noun: int = 0


def tags_of(plain: PlainPost, document: Document) -> tuple[str, ...]:
    found = _phrases(document)
    ranked = sorted(found, key=lambda key: (-_score(key, found, document), found[key].first, key))
    chosen = _without_parts(ranked, found, document)
    tags = fit_tags(_shown(found[key], document.language) for key in chosen)[:_WANTED]
    if len(tags) >= LEAST_TAGS:
        return tags
    return fit_tags((*tags, *_any_words(plain)))[: max(len(tags), LEAST_TAGS)]


def _phrases(document: Document) -> dict[Key, _Found]:
    found: dict[Key, _Found] = defaultdict(_Found)
    texts = (document.title, *document.headings, *(s.words for s in document.sentences))
    for number, words in enumerate(texts):
        for start, phrase in _runs(words):
            entry = found[tuple(word.key for word in phrase)]
            if not entry.count:
                entry.first = number
            entry.count += 1
            entry.sentences.add(number)
            entry.surfaces[_joined(phrase, document.language)] += 1
            # A capital within a sentence; the title's say nothing.
            entry.names += start > 0 and number > 0 and all(w.surface[0].isupper() for w in phrase)
            entry.noun += all(word.noun for word in phrase)
            entry.articles += start > 0 and cues.is_article(words[start - 1].surface)
    return found


def _runs(words: tuple[Word, ...]) -> Iterator[tuple[int, tuple[Word, ...]]]:
    for start in range(len(words)):
        for length in range(1, _LONGEST_PHRASE + 1):
            phrase = words[start : start + length]
            if len(phrase) < length or not phrase[-1].key:
                break
            yield start, phrase


def _score(key: Key, found: dict[Key, _Found], document: Document) -> float:
    entry = found[key]
    if not entry.noun:
        return 0.0
    if len(key) > 1:
        if entry.count < _LEAST_PHRASE_COUNT:
            return 0.0
        rarest = min(found[part,].count for part in key)
        if entry.count < _COHESION * rarest:
            return 0.0
    shown = _shown(entry, document.language)
    if all(cues.is_measure(part) for part in shown.split()):
        return 0.0
    score = entry.count * log1p(len(entry.sentences)) * sqrt(min(len(shown), _MOST_LETTERS))
    score *= 1.0 + 1.0 / (1.0 + entry.first / 3.0)
    return score * _boost(key, entry, document)


def _boost(key: Key, entry: _Found, document: Document) -> float:
    boost = _OF_TITLE if _within(key, document.title) else 1.0
    if any(_within(key, heading) for heading in document.headings):
        boost *= _OF_HEADING
    if document.language == "de":
        return boost if entry.names else 0.0  # not a noun
    if entry.names > entry.count / 2:
        boost *= _OF_NAME
    elif entry.articles and document.language in _HAS_ARTICLES:
        boost *= _OF_ARTICLE
    return boost


def _within(key: Key, words: tuple[Word, ...]) -> bool:
    keys = [word.key for word in words]
    return any(tuple(keys[start : start + len(key)]) == key for start in range(len(keys)))


def _without_parts(
    ranked: list[Key], found: dict[Key, _Found], document: Document
) -> Iterator[Key]:
    """A word isn't a tag beside a phrase that often holds it, nor a phrase beside its like."""
    scored = [key for key in ranked if _score(key, found, document)]
    often = {
        part: max(found[key].count for key in scored if len(key) > 1 and part in key)
        for part in {part for key in scored if len(key) > 1 for part in key}
    }
    taken: set[str] = set()
    for key in scored:
        if len(key) == 1 and often.get(key[0], 0) >= _COHESION * found[key].count:
            continue
        if not taken.isdisjoint(key):
            continue
        taken.update(key)
        yield key


def _shown(entry: _Found, language: str) -> str:
    """Its commonest form; in lower case unless it is a name."""
    surface = min(entry.surfaces, key=lambda text: (-entry.surfaces[text], text))
    if language == "de" or entry.names > entry.count / 2 or surface.isupper():
        return surface
    return surface.lower()


def _joined(phrase: tuple[Word, ...], language: str) -> str:
    return ("" if language in {"zh", "ja"} else " ").join(word.surface for word in phrase)


def _any_words(plain: PlainPost) -> Iterator[str]:
    """For posts of few words: the longest ones first, whatever they are."""
    words = {
        word
        for text in (plain.title, *plain.paragraphs[:50], *plain.headings[:50])
        for word in words_of(text[:2000])
    }
    yield from sorted(words, key=lambda word: (not word[0].isalpha(), -min(len(word), 20), word))
