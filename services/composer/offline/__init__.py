"""The writer that needs no network: it takes sentences and words from a post.

A sentence that begins with a pronoun or a connective (`It …`, `However, …`) needs the sentence
before it. A summary has such a sentence only after that one, and a tweet never has one.
"""

import re
from functools import cache
from itertools import chain
from pathlib import Path

from services.composer import rules
from services.composer.offline.document import Document, Sentence, parse_document, spell_japanese
from services.composer.offline.post_tags import extract_tags
from services.composer.text.characters import ELLIPSIS
from services.composer.text.post import MetadataField, PlainPost, PostMetadata


def write_metadata(
    plain: PlainPost, wanted: frozenset[MetadataField], content_hash: str
) -> PostMetadata:
    """Always the same for the same post; `content_hash` is hexadecimal."""
    document = parse_document(plain)
    return PostMetadata(
        slug=write_slug(plain, document, content_hash) if MetadataField.SLUG in wanted else None,
        summary=write_summary(plain, document) if MetadataField.SUMMARY in wanted else None,
        tags=extract_tags(plain, document) if MetadataField.TAGS in wanted else None,
    )


def write_tweets(plain: PlainPost) -> tuple[str, ...]:
    """Return sentences that stand alone, the title before the first unless that repeats it."""
    document = parse_document(plain)
    wanted = min(rules.MAX_TWEETS, 1 + len(document.sentences) // _SENTENCES_A_TWEET)
    # Unlike sentences in the post's order: the first of paragraphs rather than others.
    language = document.language
    good = [
        sentence
        for sentence in document.sentences
        if sentence.whole
        and not sentence.listed
        and not has_back_reference(sentence, language)
        and not _is_personal(sentence, language)
        and rules.measure_tweet_weight(sentence.text[:600]) <= rules.MAX_TWEET_WEIGHT
    ]
    openings = [sentence for sentence in good if sentence.opens]
    chosen: list[Sentence] = []
    for sentence in dict.fromkeys(chain(openings, good, document.sentences)):
        if len(chosen) == wanted or (chosen and sentence not in good):
            break
        if not any(_are_similar(sentence.keys(), other.keys()) for other in chosen):
            chosen.append(sentence)
    chosen.sort(key=document.sentences.index)
    texts = [sentence.text for sentence in chosen]
    opening = texts[0] if texts else plain.title
    named = {word.key for word in document.title if word.key}
    repeats = chosen and _are_similar(named, chosen[0].keys())
    if plain.title and not repeats and not opening.startswith(plain.title):
        colon = "：" if language in {"zh", "ja"} else ": "
        between = " " if plain.title[-1] in ".!?…。！？:：" else colon
        whole = f"{plain.title}{between}{opening}"
        opening = whole if rules.measure_tweet_weight(whole) <= rules.MAX_TWEET_WEIGHT else opening
    if fitting := rules.fit_tweets(plain, [opening, *texts[1:]]):
        return fitting
    any_text = (plain.title, *plain.headings[:10], *plain.paragraphs[:10])
    return rules.fit_tweets(plain, any_text)[:1] or (ELLIPSIS,)


_MAX_TITLE_CHARACTERS = 400
# For a post without a title.
_MAX_KEY_WORDS = 8
_MAX_KEY_WORDS_CHARACTERS = 60
# The plain letters with which writers of these languages replace their own.
_SPELLED = {
    "de": str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"}),
    "da": str.maketrans({"å": "aa", "ø": "oe", "æ": "ae", "Å": "Aa", "Ø": "Oe", "Æ": "Ae"}),
}
# Only Japanese has words in kana; a single character may be an ornament.
_KANA_WORD = re.compile("[\u3041-\u3096\u30a1-\u30ff]{2}")


def write_slug(plain: PlainPost, document: Document, content_hash: str) -> str:
    """The title's words, or those that the post is about; `post-…` where there are none."""
    nameless = rules.fit_slug("", content_hash)
    title = _spell(plain.title[:_MAX_TITLE_CHARACTERS], document.language)
    slug = rules.fit_slug(title, content_hash)
    if slug != nameless:
        return slug
    spelled = (_spell(tag, document.language) for tag in extract_tags(plain, document))
    slugs = [slug for text in spelled if (slug := rules.fit_slug(text, content_hash)) != nameless]
    # As many words as there is room for, each once; the first is cut if it is too long.
    words: list[str] = []
    for slug in slugs:
        longer = words + [word for word in slug.split("-") if word not in words]
        fits = len("-".join(longer)) <= _MAX_KEY_WORDS_CHARACTERS
        if fits and len(longer) <= _MAX_KEY_WORDS:
            words = longer
    if slugs and not words:
        return slugs[0][:_MAX_KEY_WORDS_CHARACTERS].strip("-")
    return "-".join(words) or nameless


def _spell(text: str, language: str) -> str:
    """In Latin letters as the language has it, as far as more is known than the letters tell."""
    if language == "ja" or _KANA_WORD.search(text):
        return spell_japanese(text)
    if language == "zh":
        from pypinyin import lazy_pinyin
        from rjieba import cut

        return "-".join("".join(lazy_pinyin(word)) for word in cut(text))
    return text.translate(_SPELLED.get(language, {}))


# Chinese and Japanese put no space after a sentence.
_UNSPACED_STOP = re.compile(r"([。！？][”』」）]?) ")
# Greetings and announcements end so.
_ENDS_OPEN = re.compile(r"[,:，、：！!][\"'”’»]*$")
_QUESTION = re.compile("[?？؟]")
_QUOTES = re.compile('["“”«»„‟「」『』]')
_MAX_PHRASE_WORDS = 3
_SENTENCES_A_TWEET = 3
_ALIKE = 0.6


@cache
def _words(file_name: str) -> dict[str, frozenset[str]]:
    """The words of each line by the code of the language with which it begins."""
    text = Path(__file__).with_name(file_name).read_text("utf-8")
    lines = (line.split() for line in text.splitlines())
    return {code: frozenset(words) for code, *words in lines}


def has_back_reference(sentence: Sentence, language: str) -> bool:
    """Tell whether the sentence begins with what points back: `this` does, `this week` does not."""
    known = _words("points_back.txt").get(language, frozenset())
    for count in range(_MAX_PHRASE_WORDS, 0, -1):
        phrase = "_".join(word.plain for word in sentence.words[:count])
        if phrase in known or f"!{phrase}" in known:
            return phrase in known
    return False


def _is_personal(sentence: Sentence, language: str) -> bool:
    """Tell whether the author greets readers, asks them, or speaks of himself."""
    if _ENDS_OPEN.search(sentence.text[-4:]) or _QUESTION.search(sentence.text):
        return True
    # The people in the news speak of themselves too, in quotation marks.
    author = _words("first_person.txt").get(language, frozenset())
    return not _QUOTES.search(sentence.text) and not author.isdisjoint(
        word.plain for word in sentence.words
    )


def write_summary(plain: PlainPost, document: Document) -> str:
    """Return the first sentences that fit; it is empty only without text."""
    for chosen in (_first(document, impersonal=True), _first(document, impersonal=False)):
        if chosen:
            text = " ".join(sentence.text for sentence in chosen)
            return rules.fit_summary(_UNSPACED_STOP.sub(r"\1", text))
    opening = sorted(document.sentences, key=lambda sentence: sentence.listed)[:1]
    texts = (*(sentence.text for sentence in opening), *plain.headings, plain.title)
    return next((fit for text in texts if (fit := rules.fit_summary(text))), "")


def _first(document: Document, *, impersonal: bool) -> list[Sentence]:
    """Return as many as fit, up to the first list; captions between them are left out."""
    chosen: list[Sentence] = []
    room = rules.MAX_SUMMARY_CHARACTERS
    has_whole = any(sentence.whole and not sentence.listed for sentence in document.sentences)
    before: Sentence | None = None
    for sentence in document.sentences:
        follows = bool(chosen) and chosen[-1] is before
        before = sentence
        if chosen and sentence.listed:
            break
        if (
            sentence.listed
            or (has_whole and not sentence.whole)
            or (has_back_reference(sentence, document.language) and not follows)
            or (impersonal and _is_personal(sentence, document.language))
        ):
            continue
        if len(sentence.text) > room:
            break
        chosen.append(sentence)
        room -= len(sentence.text) + 1
    return chosen


def _are_similar(one: set[str], other: set[str]) -> bool:
    """Tell whether most words of the shorter text are in the other."""
    return len(one & other) > _ALIKE * max(1, min(len(one), len(other)))
