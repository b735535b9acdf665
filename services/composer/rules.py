"""What is promised of everything that is written about a post, whoever writes it.

``…_faults`` tell which promises an output breaks; ``fit_…`` mend what can be mended without
knowing what was meant, and leave alone what breaks nothing.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from services.composer.post import MetadataField, PlainPost, PostMetadata
from services.composer.text import hyperlinks
from services.composer.text.characters import cut_at_word, normalise_visible, one_line
from services.composer.text.markup import clean_text, strip_markup
from services.composer.text.sentences import whole_sentences
from services.composer.text.transliteration import transliterate
from services.composer.text.tweet_length import MAX_TWEET_WEIGHT, weighted_length
from services.composer.text.words import content_words, fold_word

__all__ = ["MAX_TWEET_WEIGHT", "weighted_length"]

MAX_SLUG_CHARACTERS = 80
MAX_SUMMARY_CHARACTERS = 300
MAX_TAGS = 8
MIN_TAGS = 3
MAX_TAG_CHARACTERS = 60
MAX_TWEETS = 5
# Of one tweet or tag, before it is fitted: room for the longest addresses.
_MAX_CONSIDERED_CHARACTERS = 4_000
# Between tweets in the answer; so none can be within one.
TWEETS_APART = "\n\n"

_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_APOSTROPHES = re.compile(r"(?<=\w)['’ʼ`´](?=\w)")
_NO_SLUG = re.compile(r"[^a-z0-9]+")
_COMMAS = re.compile(r"[,，､、﹐﹑،;；]+")
_AROUND_TAG = " \t.。!！?？:：\"'“”«»„()（）[]#＃-–—…·"


def metadata_faults(
    plain: PlainPost, metadata: PostMetadata, wanted: frozenset[MetadataField]
) -> list[str]:
    """Sentences for a writer that may try once more; empty if every rule is kept."""
    faults = [
        f"{part} is {'missing' if part in wanted else 'not wanted'}"
        for part in MetadataField
        if (part in wanted) != (getattr(metadata, part) is not None)
    ]
    if metadata.slug is not None:
        faults += _slug_faults(metadata.slug)
    if metadata.summary is not None:
        faults += _summary_faults(plain, metadata.summary)
    if metadata.tags is not None:
        faults += _tags_faults(plain, metadata.tags)
    return faults


def tweets_faults(plain: PlainPost, tweets: Sequence[str]) -> list[str]:
    faults = []
    own = _links_of(plain)
    if not 1 <= len(tweets) <= MAX_TWEETS:
        faults.append(f"there are {len(tweets)} tweets, not 1 to {MAX_TWEETS}")
    if len({fold_word(tweet) for tweet in tweets}) < len(tweets):
        faults.append("two tweets are the same")
    for number, tweet in enumerate(tweets, 1):
        faults += [f"tweet {number} {fault}" for fault in _tweet_faults(plain, own, tweet)]
    return faults


def fit_slug(text: str, content_hash: str) -> str:
    """`content_hash` is hexadecimal: its first 8 digits name a post that has no words."""
    words = _NO_SLUG.sub("-", transliterate(_APOSTROPHES.sub("", text)).casefold()).strip("-")
    if len(words) > MAX_SLUG_CHARACTERS:
        cut = words[: MAX_SLUG_CHARACTERS + 1]
        words = (cut.rpartition("-")[0] or cut[:MAX_SLUG_CHARACTERS]).strip("-")
    return words or f"post-{content_hash[:8]}"


def fit_summary(text: str) -> str:
    """As many whole sentences as there is room for; a first one that is longer is cut."""
    text = _plain(text)
    if len(text) <= MAX_SUMMARY_CHARACTERS:
        return text
    kept = whole_sentences(text, MAX_SUMMARY_CHARACTERS)
    return _plain(kept) if kept else _cut(text, MAX_SUMMARY_CHARACTERS, len)


def fit_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Without commas, marks around them and repeats, in their own order."""
    fitting: dict[str, str] = {}
    for tag in tags:
        clean = one_line(_COMMAS.sub(" ", _plain(tag[:_MAX_CONSIDERED_CHARACTERS]))).strip(
            _AROUND_TAG
        )
        if clean and len(clean) <= MAX_TAG_CHARACTERS and _has_letter(clean):
            fitting.setdefault(fold_word(clean), clean)
    return tuple(fitting.values())[:MAX_TAGS]


def fit_tweets(plain: PlainPost, tweets: Iterable[str]) -> tuple[str, ...]:
    """Without what the post doesn't link or mention, cut to length; none may be left."""
    fitting: dict[str, str] = {}
    links_of = _links_of(plain)
    for tweet in tweets:
        own = _without_strangers(plain, links_of, _plain(tweet[:_MAX_CONSIDERED_CHARACTERS]))
        if _tweet_faults(plain, links_of, own):
            # Links in full-width letters are seen once these are plain ones.
            own = _plain(unicodedata.normalize("NFKC", own))
            own = _without_strangers(plain, links_of, own)
        cut = _cut(own, MAX_TWEET_WEIGHT, weighted_length)
        # What is cut may be another link's beginning.
        if cut and not _tweet_faults(plain, links_of, cut):
            fitting.setdefault(fold_word(cut), cut)
    return tuple(fitting.values())[:MAX_TWEETS]


def _slug_faults(slug: str) -> list[str]:
    if _SLUG.fullmatch(slug) and len(slug) <= MAX_SLUG_CHARACTERS:
        return []
    return [f"the slug is not 1 to {MAX_SLUG_CHARACTERS} of a-z, 0-9 and single hyphens"]


def _summary_faults(plain: PlainPost, summary: str) -> list[str]:
    faults = _text_faults(summary, "the summary")
    if len(summary) > MAX_SUMMARY_CHARACTERS:
        faults.append(f"the summary is longer than {MAX_SUMMARY_CHARACTERS} characters")
    if not summary and _shown(plain):
        faults.append("the summary is empty")
    return faults


def _tags_faults(plain: PlainPost, tags: tuple[str, ...]) -> list[str]:
    faults = [fault for tag in tags for fault in _tag_faults(tag)]
    if len(tags) > MAX_TAGS:
        faults.append(f"there are more than {MAX_TAGS} tags")
    if len(tags) < MIN_TAGS <= len(content_words(plain, MIN_TAGS)):
        faults.append(f"there are fewer than {MIN_TAGS} tags")
    if len({fold_word(tag) for tag in tags}) < len(tags):
        faults.append("two tags are the same")
    return faults


def _tag_faults(tag: str) -> list[str]:
    faults = _text_faults(tag, "a tag")
    if not tag or len(tag) > MAX_TAG_CHARACTERS:
        faults.append(f"a tag is not 1 to {MAX_TAG_CHARACTERS} characters")
    if _COMMAS.search(tag):
        faults.append("a tag holds a comma")
    return faults


def _tweet_faults(plain: PlainPost, own: frozenset[str], tweet: str) -> list[str]:
    faults = _text_faults(tweet, "")
    if not tweet:
        faults.append("is empty")
    if weighted_length(tweet) > MAX_TWEET_WEIGHT:
        faults.append(f"weighs more than {MAX_TWEET_WEIGHT}")
    if not hyperlinks.find_links(tweet) <= own:
        faults.append("has a link that the post doesn't have")
    if not hyperlinks.find_mentions(tweet) <= plain.mentions:
        faults.append("mentions somebody whom the post doesn't mention")
    return faults


def _text_faults(text: str, what: str) -> list[str]:
    faults = []
    if text != one_line(normalise_visible(text)):
        faults.append(f"{what} is not one line of visible text".strip())
    elif text != clean_text(text):
        faults.append(f"{what} holds markup".strip())
    return faults


def _without_strangers(plain: PlainPost, own: frozenset[str], text: str) -> str:
    cuts = [span[:2] for span in hyperlinks.link_spans(text) if span[2] not in own]
    cuts += [
        span[:2]
        for span in hyperlinks.mention_spans(text)
        if hyperlinks.fold_link(span[2]) not in plain.mentions
    ]
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    return one_line(text)


def _links_of(plain: PlainPost) -> frozenset[str]:
    """Addresses, and what the text itself shows that looks like one: `Node.js` is no link yet."""
    return frozenset(map(hyperlinks.canonical_link, plain.links)) | hyperlinks.find_links(
        _shown(plain)
    )


def _shown(plain: PlainPost) -> str:
    return "\n".join((plain.title, *plain.headings, *plain.paragraphs)).strip()


def _plain(text: str) -> str:
    return clean_text(one_line(normalise_visible(text)))


def _cut(text: str, most: int, measure: Callable[[str], int]) -> str:
    cut = cut_at_word(text, most, measure)
    # Marks that meant nothing may mean something where the text now ends.
    return cut if cut == clean_text(cut) else cut_at_word(strip_markup(text), most, measure)


def _has_letter(text: str) -> bool:
    return any(character.isalnum() for character in text)
