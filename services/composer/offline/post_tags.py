"""Chooses the tags of a post from its words and pairs of words.

A phrase is a good tag if it is a name, if it is frequent, if it occurs early or in headings, or if
it occurs throughout the post. The criteria come from methods for key phrase extraction (KP-Miner
and YAKE). Words with the same stem are counted together.
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

_MAX_TAGS = 6
# The maximum number of phrases that can become tags. There are more candidate phrases than tags,
# because several phrases may result in the same tag.
_MAX_CANDIDATES = 20
# The maximum number of distinct words that can become tags of a short post.
_MAX_WORDS = 100
_TITLE_WEIGHT = 1.5
_HEADING_WEIGHT = 1.2
_NAME_WEIGHT = 1.3
# The score factor of a phrase that follows an article, such as `the`. A phrase after an article is
# a noun, and nouns are good tags.
_ARTICLE_WEIGHT = 1.4
_LANGUAGES_WITH_ARTICLES = frozenset({"en", "de", "fr", "es", "it", "pt", "nl"})
_MAX_SCORED_LETTERS = 12
_MIN_PHRASE_COUNT = 2
# A pair of words can be a tag only if at least this share of the rarer word's occurrences are in
# the pair.
_MIN_COHESION = 0.45


def _load_words(file_name: str) -> frozenset[str]:
    return frozenset(Path(__file__).with_name(file_name).read_text("utf-8").split())


_ARTICLES = _load_words("articles.txt")
# Words for quantities and times, which are frequent but never a post's topic.
_MEASURES = _load_words("measures.txt")

# The keys of the words in a phrase, which has one or two words.
PhraseKey = tuple[str, ...]


class _Occurrence(NamedTuple):
    """``text_number``: the index of the title, heading or sentence with the phrase."""

    text_number: int
    previous_word: Word | None
    is_in_sentence: bool


@dataclass(slots=True)
class _PhraseCounts:
    """How often and where a phrase occurs in a post.

    Attributes:
        first_text: the index of the first title, heading or sentence that contains the phrase.
        texts: the number of titles, headings and sentences with the phrase.
        names: how often the phrase is capitalised like a name.
        articles: how often the phrase follows an article, such as `the`.
        surfaces: how often each spelling of the phrase occurs.
        inner_surfaces: how often each spelling of the phrase occurs inside sentences, where only
            names are capitalised.
    """

    first_text: int
    last_text: int = -1
    count: int = 0
    texts: int = 0
    names: int = 0
    articles: int = 0
    is_noun: bool = True
    surfaces: Counter[str] = field(default_factory=Counter)
    inner_surfaces: Counter[str] = field(default_factory=Counter)


def extract_tags(plain: PlainPost, document: Document) -> tuple[str, ...]:
    """Return the tags of a post, best first."""
    phrases = _count_phrases(document)
    scores = _score_phrases(phrases, document)
    ranked = sorted(scores, key=lambda key: (-scores[key], phrases[key].first_text, key))
    spellings = (_spell_phrase(key, phrases) for key in _drop_overlapping(ranked, phrases))
    tags = fit_tags(islice(spellings, _MAX_CANDIDATES))[:_MAX_TAGS]
    if len(tags) >= MIN_TAGS:
        return tags
    # If there are too few tags, use the longest words of the post as further tags.
    texts = (plain.title, *plain.paragraphs[:50], *plain.headings[:50])
    words = {word for text in texts for word in split_words(text[:2000])}
    longest = sorted(words, key=lambda word: (not word[0].isalpha(), -min(len(word), 20), word))
    candidates = (word for word in (*tags, *longest) if len(word) <= MAX_TAG_CHARACTERS)
    tokenize = get_tokenizer(document.language)
    # If several forms of a word occur, such as singular and plural, keep only the first.
    word_by_key: dict[PhraseKey, str] = {}
    for candidate in islice(candidates, _MAX_WORDS):
        key = tuple(word.key or word.plain for word in tokenize(candidate))
        word_by_key.setdefault(key, candidate)
    tags = fit_tags(word_by_key.values())[:MIN_TAGS]
    content_words = find_content_words(plain, MIN_TAGS)
    if len(tags) >= min(MIN_TAGS, len(content_words)):
        return tags
    # If there are still too few tags, accept several forms of the same word, and add words from the
    # rest of the post.
    return fit_tags((*tags, *longest, *sorted(content_words)))[:MIN_TAGS]


def _count_phrases(document: Document) -> dict[PhraseKey, _PhraseCounts]:
    phrases: dict[PhraseKey, _PhraseCounts] = {}
    separator = "" if document.language in {"zh", "ja"} else " "
    sentences = (sentence.words for sentence in document.sentences)
    texts = (document.title, *document.headings, *sentences)
    for number, words in enumerate(texts):
        for place, word in enumerate(words):
            if not word.key:
                continue
            occurrence = _Occurrence(
                number, words[place - 1] if place else None, number > len(document.headings)
            )
            counts = _count_occurrence(phrases, (word.key,), word.surface, occurrence)
            counts.is_noun = word.is_noun
            next_word = words[place + 1] if place + 1 < len(words) else word
            if next_word.key and next_word is not word:
                surface = f"{word.surface}{separator}{next_word.surface}"
                key = (word.key, next_word.key)
                counts = _count_occurrence(phrases, key, surface, occurrence)
                counts.is_noun = word.is_noun and next_word.is_noun
    return phrases


def _count_occurrence(
    phrases: dict[PhraseKey, _PhraseCounts], key: PhraseKey, surface: str, occurrence: _Occurrence
) -> _PhraseCounts:
    counts = phrases.setdefault(key, _PhraseCounts(occurrence.text_number))
    counts.count += 1
    counts.texts += counts.last_text != occurrence.text_number
    counts.last_text = occurrence.text_number
    counts.surfaces[surface] += 1
    if occurrence.previous_word:
        if occurrence.is_in_sentence:
            counts.inner_surfaces[surface] += 1
        # A capital letter inside a word, as in `iPhone`, indicates a name. A capitalised word is
        # probably a name, unless it begins a sentence. Don't count capital letters in the title,
        # because all words of a title may be capitalised.
        is_name = surface[0].isupper() or (len(key) == 1 and surface != surface.lower())
        counts.names += occurrence.text_number > 0 and is_name
        counts.articles += occurrence.previous_word.plain in _ARTICLES
    return counts


def _score_phrases(
    phrases: dict[PhraseKey, _PhraseCounts], document: Document
) -> dict[PhraseKey, float]:
    scores: dict[PhraseKey, float] = {}
    title_keys = _list_keys(document.title)
    heading_keys = set().union(*map(_list_keys, document.headings))
    for key, counts in phrases.items():
        rarest_count = min(phrases[part,].count for part in key)
        is_loose = counts.count < max(_MIN_PHRASE_COUNT, _MIN_COHESION * rarest_count)
        if not counts.is_noun or (len(key) > 1 and is_loose):
            continue
        spelling = _spell_phrase(key, phrases)
        if _MEASURES.issuperset(spelling.casefold().split()):
            continue
        score = counts.count * log1p(counts.texts) * sqrt(min(len(spelling), _MAX_SCORED_LETTERS))
        score *= 1.0 + 1.0 / (1.0 + counts.first_text / 3.0)
        score *= _TITLE_WEIGHT if key in title_keys else 1.0
        score *= _HEADING_WEIGHT if key in heading_keys else 1.0
        score *= _weigh_noun(counts, document.language)
        if score:
            scores[key] = score
    return scores


def _weigh_noun(counts: _PhraseCounts, language: str) -> float:
    """Return a higher weight for names and for nouns after articles.

    In German, only capitalised phrases can be tags, because all nouns are capitalised.
    """
    if language == "de":
        return 1.0 if counts.names else 0.0
    if counts.names > counts.count / 2:
        return _NAME_WEIGHT
    return _ARTICLE_WEIGHT if counts.articles and language in _LANGUAGES_WITH_ARTICLES else 1.0


def _list_keys(words: Sequence[Word]) -> set[PhraseKey]:
    keys = [word.key for word in words]
    return {(key,) for key in keys} | set(pairwise(keys))


def _drop_overlapping(
    ranked: list[PhraseKey], phrases: dict[PhraseKey, _PhraseCounts]
) -> Iterator[PhraseKey]:
    """A phrase is dropped if a better phrase contains one of its words. A single word is dropped if
    it occurs mostly as part of a pair.
    """
    max_pair_counts: dict[str, int] = {}
    for key in ranked:
        if len(key) > 1:
            pair_count = phrases[key].count
            max_pair_counts.update(
                {part: max(max_pair_counts.get(part, 0), pair_count) for part in key}
            )
    used_words: set[str] = set()
    for key in ranked:
        min_pair_count = _MIN_COHESION * phrases[key].count
        if len(key) == 1 and max_pair_counts.get(key[0], 0) >= min_pair_count:
            continue
        if used_words.isdisjoint(key):
            used_words.update(key)
            yield key


def _spell_phrase(key: PhraseKey, phrases: dict[PhraseKey, _PhraseCounts]) -> str:
    """Return the most frequent spelling of a phrase inside sentences.

    If a phrase occurs only at the start of sentences, the capital letter is kept only if the post
    usually capitalises the phrase's first word.
    """
    counts = phrases[key]
    if counts.inner_surfaces or len(key) == 1:
        return _find_most_common(counts.inner_surfaces or counts.surfaces)
    surface = _find_most_common(counts.surfaces)
    first_word = phrases[key[:1]]
    if first_word.inner_surfaces and _find_most_common(first_word.inner_surfaces).islower():
        return surface[:1].lower() + surface[1:]
    return surface


def _find_most_common(counts: dict[str, int]) -> str:
    return min(counts, key=lambda text: (-counts[text], text != text.lower(), text))
