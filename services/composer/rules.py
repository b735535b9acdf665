"""Checks and corrects the metadata and tweets from a writer.

The functions ``find_…_faults`` return a sentence about each broken rule. The functions ``fit_…``
correct violations without a writer, and don't change texts that follow the rules.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from services.composer.text import hyperlinks
from services.composer.text.characters import clean_line, cut_at_word, join_lines, transliterate
from services.composer.text.markup import clean_text, strip_markup
from services.composer.text.post import MAX_TWEETS, MetadataField, PlainPost, PostMetadata
from services.composer.text.tweet_weight import MAX_TWEET_WEIGHT, measure_tweet_weight
from services.composer.text.words import find_content_words, fold_word, take_whole_sentences

MAX_SLUG_CHARACTERS = 80
MAX_SUMMARY_CHARACTERS = 300
MAX_TAGS = 8
MIN_TAGS = 3
MAX_TAG_CHARACTERS = 60
# Before the code corrects tweets and tags, it cuts texts above this length. The limit of 4,000
# characters leaves room for a tweet that contains a very long URL.
_MAX_CONSIDERED_CHARACTERS = 4_000
_SLUG_PATTERN = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_APOSTROPHES = re.compile(r"(?<=\w)['’ʼ`´](?=\w)")
_NON_SLUG_PATTERN = re.compile(r"[^a-z0-9]+")
_COMMAS = re.compile(r"[,，､、﹐﹑،;；]+")
_TAG_PUNCTUATION = " \t.。!！?？:：\"'“”«»„()（）[]#＃-–—…·"


def find_metadata_faults(
    plain: PlainPost, metadata: PostMetadata, fields: frozenset[MetadataField]
) -> list[str]:
    faults = [
        f"{part} is {'missing' if part in fields else 'not wanted'}"
        for part in MetadataField
        if (part in fields) != (getattr(metadata, part) is not None)
    ]
    slug = metadata.slug
    summary = metadata.summary
    if slug is not None and (len(slug) > MAX_SLUG_CHARACTERS or not _SLUG_PATTERN.fullmatch(slug)):
        faults.append(f"the slug is not 1 to {MAX_SLUG_CHARACTERS} of a-z, 0-9 and single hyphens")
    if summary is not None:
        faults += _find_text_faults(summary, "the summary")
        if len(summary) > MAX_SUMMARY_CHARACTERS:
            faults.append(f"the summary is longer than {MAX_SUMMARY_CHARACTERS} characters")
        if not summary and plain.text:
            faults.append("the summary is empty")
    if metadata.tags is not None:
        faults += _find_tags_faults(plain, metadata.tags)
    return faults


def find_foreign_faults(plain: PlainPost, metadata: PostMetadata) -> list[str]:
    """Find the fields with a link or mention that the post lacks. Slugs can't contain links."""
    fault = "has a link or a mention that the post doesn't have"
    parts = {"the summary": (metadata.summary or "",), "a tag": metadata.tags or ()}
    return [
        f"{part} {fault}"
        for part, texts in parts.items()
        if any(_has_foreign_links(plain, text) for text in texts)
    ]


def find_tweets_faults(plain: PlainPost, tweets: Sequence[str]) -> list[str]:
    faults = []
    if not 1 <= len(tweets) <= MAX_TWEETS:
        faults.append(f"there are {len(tweets)} tweets, not 1 to {MAX_TWEETS}")
    if len({fold_word(tweet) for tweet in tweets}) < len(tweets):
        faults.append("two tweets are the same")
    for number, tweet in enumerate(tweets, 1):
        tweet_faults = (*_find_text_faults(tweet, ""), *_find_tweet_faults(plain, tweet))
        faults += [f"tweet {number} {fault}" for fault in tweet_faults]
    return faults


def fit_slug(text: str, content_hash: str) -> str:
    """Build the slug from ``content_hash`` if the text has no letters or digits."""
    latin_text = transliterate(_APOSTROPHES.sub("", text)).casefold()
    words = _NON_SLUG_PATTERN.sub("-", latin_text).strip("-")
    if len(words) > MAX_SLUG_CHARACTERS:
        cut = words[: MAX_SLUG_CHARACTERS + 1]
        words = (cut.rpartition("-")[0] or cut[:MAX_SLUG_CHARACTERS]).strip("-")
    return words or f"post-{content_hash[:8]}"


def fit_summary(text: str) -> str:
    """Return the text's first sentences. A first sentence that is too long is cut between words."""
    text = clean_text(text)
    if len(text) <= MAX_SUMMARY_CHARACTERS:
        return text
    sentences = take_whole_sentences(text, MAX_SUMMARY_CHARACTERS)
    return clean_text(sentences) if sentences else _cut(text, MAX_SUMMARY_CHARACTERS, len)


def fit_tags(tags: Iterable[str]) -> tuple[str, ...]:
    fitting: dict[str, str] = {}
    for tag in tags:
        without_commas = _COMMAS.sub(" ", clean_text(tag[:_MAX_CONSIDERED_CHARACTERS]))
        text = join_lines(without_commas).strip(_TAG_PUNCTUATION)
        if len(text) <= MAX_TAG_CHARACTERS and any(map(str.isalnum, text)):
            fitting.setdefault(fold_word(text), text)
    return tuple(fitting.values())[:MAX_TAGS]


def fit_tweets(plain: PlainPost, tweets: Iterable[str]) -> tuple[str, ...]:
    """Remove links and mentions that the post doesn't contain, and shorten long tweets.

    Tweets that can't be corrected are omitted.
    """
    fitting: dict[str, str] = {}
    for tweet in tweets:
        text = remove_foreign_links(plain, clean_text(tweet[:_MAX_CONSIDERED_CHARACTERS]))
        if not _is_fit(plain, text):
            # Some programs recognise links in full-width letters. Convert full-width letters to
            # ordinary letters, so that links in full-width letters are removed too.
            text = remove_foreign_links(plain, clean_text(unicodedata.normalize("NFKC", text)))
        text = _cut(text, MAX_TWEET_WEIGHT, measure_tweet_weight)
        # Check the tweet again, because shortening may create a foreign link.
        if _is_fit(plain, text):
            fitting.setdefault(fold_word(text), text)
    return tuple(fitting.values())[:MAX_TWEETS]


def remove_foreign_links(plain: PlainPost, text: str) -> str:
    remaining = hyperlinks.remove_foreign_links(text, plain.comparable_links, plain.mentions)
    return text if remaining == text else join_lines(remaining)


def _has_foreign_links(plain: PlainPost, text: str) -> bool:
    links = hyperlinks.find_links(text)
    mentions = hyperlinks.find_mentions(text)
    return not (links <= plain.comparable_links and mentions <= plain.mentions)


def _find_tags_faults(plain: PlainPost, tags: tuple[str, ...]) -> list[str]:
    faults = []
    for tag in tags:
        faults += _find_text_faults(tag, "a tag")
        if not tag or len(tag) > MAX_TAG_CHARACTERS:
            faults.append(f"a tag is not 1 to {MAX_TAG_CHARACTERS} characters")
        if _COMMAS.search(tag):
            faults.append("a tag holds a comma")
    if len(tags) > MAX_TAGS:
        faults.append(f"there are more than {MAX_TAGS} tags")
    if len(tags) < MIN_TAGS <= len(find_content_words(plain, MIN_TAGS)):
        faults.append(f"there are fewer than {MIN_TAGS} tags")
    if len({fold_word(tag) for tag in tags}) < len(tags):
        faults.append("two tags are the same")
    return faults


def _find_tweet_faults(plain: PlainPost, tweet: str) -> list[str]:
    foreign_mentions = hyperlinks.find_mentions(tweet) - plain.mentions
    is_broken_by_fault = {
        "is empty": not tweet,
        f"weighs more than {MAX_TWEET_WEIGHT}": measure_tweet_weight(tweet) > MAX_TWEET_WEIGHT,
        "has a link that the post doesn't have": hyperlinks.find_links(tweet)
        - plain.comparable_links,
        "mentions a handle that the post doesn't mention": foreign_mentions,
    }
    return [fault for fault, is_broken in is_broken_by_fault.items() if is_broken]


def _find_text_faults(text: str, part: str) -> list[str]:
    if text != clean_line(text):
        return [f"{part} is not one line of visible text".strip()]
    return [] if text == clean_text(str(text)) else [f"{part} holds markup".strip()]


def _is_fit(plain: PlainPost, tweet: str) -> bool:
    return tweet == clean_text(tweet) and not _find_tweet_faults(plain, tweet)


def _cut(text: str, max_length: int, measure: Callable[[str], int]) -> str:
    cut = cut_at_word(text, max_length, measure)
    # Shortening a text can turn its last characters into markup.
    return cut if cut == clean_text(cut) else cut_at_word(strip_markup(text), max_length, measure)
