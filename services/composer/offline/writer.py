"""Writes metadata and tweets about a post without a language model.

A sentence that begins with a pronoun or a connective, such as `However`, refers back to the
preceding sentence. A summary contains such a sentence only together with the sentence before it.
Tweets contain no such sentences. A post without other suitable sentences is an exception to both
rules.
"""

import re
from functools import cache
from itertools import chain
from pathlib import Path

from services.composer import rules
from services.composer.offline.document import Document, Sentence, parse_document, spell_japanese
from services.composer.offline.post_tags import extract_tags
from services.composer.text.characters import ELLIPSIS
from services.composer.text.post import MAX_TWEETS, MetadataField, PlainPost, PostMetadata
from services.composer.text.tweet_weight import MAX_TWEET_WEIGHT, measure_tweet_weight

_MAX_TITLE_CHARACTERS = 400
# The maximum number of words and characters in a slug made of tags.
_MAX_KEY_WORDS = 8
_MAX_KEY_WORDS_CHARACTERS = 60
_MAX_PHRASE_WORDS = 3
_SENTENCES_PER_TWEET = 3
# Two sentences are similar if they share more than this fraction of the shorter sentence's words.
_SIMILAR_SHARE = 0.6
# Maps special letters to their usual replacements in each language, such as `ä` to `ae`.
_SPELLINGS = {
    "de": str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"}),
    "da": str.maketrans({"å": "aa", "ø": "oe", "æ": "ae", "Å": "Aa", "Ø": "Oe", "Æ": "Ae"}),
}
# Matches two consecutive kana, which occur only in Japanese. A single kana doesn't count as
# Japanese, because texts in other languages use kana as ornaments.
_KANA_WORD = re.compile("[\u3041-\u3096\u30a1-\u30ff]{2}")
# Matches the end of a Chinese or Japanese sentence and the following space. A space after a Chinese
# or Japanese sentence is removed, because these languages don't separate sentences with spaces.
_UNSPACED_STOP = re.compile(r"([。！？][”』」）]?) ")
# Matches the end of a greeting or announcement, for example a colon.
_OPEN_END = re.compile(r"[,:，、：！!][\"'”’»]*$")
_QUESTION = re.compile("[?？؟]")
_QUOTES = re.compile('["“”«»„‟「」『』]')


def write_metadata(
    plain: PlainPost, fields: frozenset[MetadataField], content_hash: str
) -> PostMetadata:
    """Equal posts get equal metadata."""
    document = parse_document(plain)
    return PostMetadata(
        slug=write_slug(plain, document, content_hash) if MetadataField.SLUG in fields else None,
        summary=write_summary(plain, document) if MetadataField.SUMMARY in fields else None,
        tags=extract_tags(plain, document) if MetadataField.TAGS in fields else None,
    )


def write_tweets(plain: PlainPost) -> tuple[str, ...]:
    """Put the title before the first tweet, unless the tweet repeats it or becomes too long."""
    document = parse_document(plain)
    language = document.language
    tweet_count = min(MAX_TWEETS, 1 + len(document.sentences) // _SENTENCES_PER_TWEET)
    suitable = [
        sentence
        for sentence in document.sentences
        if sentence.is_complete
        and not sentence.is_listed
        and not has_back_reference(sentence, language)
        and not _is_personal(sentence, language)
        and measure_tweet_weight(sentence.text[:600]) <= MAX_TWEET_WEIGHT
    ]
    # Prefer the first sentence of each paragraph, because it is the most informative.
    openings = [sentence for sentence in suitable if sentence.opens_paragraph]
    chosen: list[Sentence] = []
    for sentence in dict.fromkeys(chain(openings, suitable, document.sentences)):
        if len(chosen) == tweet_count or (chosen and sentence not in suitable):
            break
        if not any(_are_similar(sentence.keys(), earlier.keys()) for earlier in chosen):
            chosen.append(sentence)
    chosen.sort(key=document.sentences.index)
    texts = [sentence.text for sentence in chosen]
    first_text = texts[0] if texts else plain.title
    title_keys = {word.key for word in document.title if word.key}
    repeats_title = chosen and _are_similar(title_keys, chosen[0].keys())
    if plain.title and not repeats_title and not first_text.startswith(plain.title):
        colon = "：" if language in {"zh", "ja"} else ": "
        separator = " " if plain.title[-1] in ".!?…。！？:：" else colon
        titled_text = f"{plain.title}{separator}{first_text}"
        if measure_tweet_weight(titled_text) <= MAX_TWEET_WEIGHT:
            first_text = titled_text
    if fitting := rules.fit_tweets(plain, [first_text, *texts[1:]]):
        return fitting
    all_texts = (plain.title, *plain.headings[:10], *plain.paragraphs[:10])
    return rules.fit_tweets(plain, all_texts)[:1] or (ELLIPSIS,)


def write_slug(plain: PlainPost, document: Document, content_hash: str) -> str:
    """Build a slug from the title, or else from the tags, or else from ``content_hash``."""
    fallback_slug = rules.fit_slug("", content_hash)
    title = _spell_in_latin(plain.title[:_MAX_TITLE_CHARACTERS], document.language)
    slug = rules.fit_slug(title, content_hash)
    if slug != fallback_slug:
        return slug
    latin_tags = (_spell_in_latin(tag, document.language) for tag in extract_tags(plain, document))
    tag_slugs = (rules.fit_slug(text, content_hash) for text in latin_tags)
    slugs = [tag_slug for tag_slug in tag_slugs if tag_slug != fallback_slug]
    # Join as many distinct words of the tags as fit into a slug. If no tag fits, shorten the first
    # tag.
    words: list[str] = []
    for slug in slugs:
        longer = words + [word for word in slug.split("-") if word not in words]
        fits = len("-".join(longer)) <= _MAX_KEY_WORDS_CHARACTERS
        if fits and len(longer) <= _MAX_KEY_WORDS:
            words = longer
    if slugs and not words:
        return slugs[0][:_MAX_KEY_WORDS_CHARACTERS].strip("-")
    return "-".join(words) or fallback_slug


def _spell_in_latin(text: str, language: str) -> str:
    """Romanise a text by the rules of its language, for example `ä` to `ae` in German.

    Letters without a romanisation rule are kept, because ``fit_slug`` transliterates them later.
    """
    if language == "ja" or _KANA_WORD.search(text):
        return spell_japanese(text)
    if language == "zh":
        from pypinyin import lazy_pinyin
        from rjieba import cut

        return "-".join("".join(lazy_pinyin(word)) for word in cut(text))
    return text.translate(_SPELLINGS.get(language, {}))


@cache
def _load_words(file_name: str) -> dict[str, frozenset[str]]:
    """Read word lists. Each line of the file begins with a language code."""
    text = Path(__file__).with_name(file_name).read_text("utf-8")
    lines = (line.split() for line in text.splitlines())
    return {code: frozenset(words) for code, *words in lines}


def has_back_reference(sentence: Sentence, language: str) -> bool:
    """A sentence that begins with `this` refers back, but not one that begins with `this week`."""
    known_phrases = _load_words("points_back.txt").get(language, frozenset())
    for count in range(_MAX_PHRASE_WORDS, 0, -1):
        phrase = "_".join(word.plain for word in sentence.words[:count])
        if phrase in known_phrases or f"!{phrase}" in known_phrases:
            return phrase in known_phrases
    return False


def _is_personal(sentence: Sentence, language: str) -> bool:
    """Return whether a sentence greets readers, asks a question, or is about its author."""
    if _OPEN_END.search(sentence.text[-4:]) or _QUESTION.search(sentence.text):
        return True
    # Ignore sentences with quotations, because a quoted `I` doesn't refer to the author.
    pronouns = _load_words("first_person.txt").get(language, frozenset())
    return not _QUOTES.search(sentence.text) and not pronouns.isdisjoint(
        word.plain for word in sentence.words
    )


def write_summary(plain: PlainPost, document: Document) -> str:
    """Return an empty summary only if the post has no text."""
    for impersonal in (True, False):
        chosen = _choose_first(document, impersonal=impersonal)
        if chosen:
            text = " ".join(sentence.text for sentence in chosen)
            return rules.fit_summary(_UNSPACED_STOP.sub(r"\1", text))
    first_sentence = sorted(document.sentences, key=lambda sentence: sentence.is_listed)[:1]
    candidates = (*(sentence.text for sentence in first_sentence), *plain.headings, plain.title)
    return next((fit for text in candidates if (fit := rules.fit_summary(text))), "")


def _choose_first(document: Document, *, impersonal: bool) -> list[Sentence]:
    """Return the beginning of the post up to the last sentence that fits into a summary.

    The summary ends before the first list. Incomplete sentences, such as captions, are omitted if
    the post has complete ones.
    """
    chosen: list[Sentence] = []
    room = rules.MAX_SUMMARY_CHARACTERS
    has_complete = any(
        sentence.is_complete and not sentence.is_listed for sentence in document.sentences
    )
    previous: Sentence | None = None
    for sentence in document.sentences:
        follows_chosen = bool(chosen) and chosen[-1] is previous
        previous = sentence
        if chosen and sentence.is_listed:
            break
        if (
            sentence.is_listed
            or (has_complete and not sentence.is_complete)
            or (has_back_reference(sentence, document.language) and not follows_chosen)
            or (impersonal and _is_personal(sentence, document.language))
        ):
            continue
        if len(sentence.text) > room:
            break
        chosen.append(sentence)
        room -= len(sentence.text) + 1
    return chosen


def _are_similar(keys: set[str], earlier_keys: set[str]) -> bool:
    min_count = max(1, min(len(keys), len(earlier_keys)))
    return len(keys & earlier_keys) > _SIMILAR_SHARE * min_count
