"""The rules that every output about a post keeps, whichever writer it comes from.

``…_faults`` tell which rules an output breaks, and take no type's word for it; ``fit_…`` mend the
faults that can be mended without knowing what was meant, and leave alone what breaks no rule.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from services.composer.text import hyperlinks
from services.composer.text.characters import cut_at_word, one_line, transliterate, visible_line
from services.composer.text.markup import clean, strip_markup
from services.composer.text.post import MetadataField, PlainPost, PostMetadata
from services.composer.text.words import content_words, fold_word, whole_sentences

# A tweet weighs what the configuration v3 of twitter-text says.
MAX_TWEET_WEIGHT = 280
URL_WEIGHT = 23

# Code points that weigh 1; all others weigh 2.
_LIGHT = ((0, 4351), (8192, 8205), (8208, 8223), (8242, 8247))
_PICTURE = "[\u203c-\u32ff\U0001f000-\U0001faff]"
_SHADED = f"{_PICTURE}[\ufe0f\U0001f3fb-\U0001f3ff]*"
# First parts of joined emoji: people, flags, animals, hearts, some faces, a chain, fruit.
_JOINING = (
    "[\u26d3\u26f9\u2764\U0001f344\U0001f34b\U0001f3c3-\U0001f3cc\U0001f3f3\U0001f3f4"
    "\U0001f408-\U0001f49f\U0001f575\U0001f62e\U0001f635\U0001f636\U0001f642"
    "\U0001f645-\U0001f64e\U0001f6a3\U0001f6b4-\U0001f6b6\U0001f900-\U0001f9ff]"
)
_EMOJI = re.compile(
    "[#*0-9]\ufe0f?\u20e3"
    "|[\U0001f1e6-\U0001f1ff]{2}"
    "|\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f"
    f"|{_JOINING}[\ufe0f\U0001f3fb-\U0001f3ff]*(?:\u200d{_SHADED}){{1,3}}"
    f"|{_SHADED}"
    "|[\u00a9\u00ae]\ufe0f?"
)
_URL = re.compile(
    r"(https?://)?((?:[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?\.){1,8}[a-z]{2,24})(:[0-9]{1,5})?"
    r"(/[a-z0-9!*';:=+,.$/%#@\[\]_~|&-]*)?(\?[a-z0-9!*';:=+,.$/%#\[\]@_~|&?-]*)?",
    re.I,
)
_JOINED_BEFORE = re.compile(r"[\w@#$./-]$", re.ASCII)
_MAX_URL_CHARACTERS = 2048
# Domains that the platform certainly knows. The platform may count another in
# full, so a URL under it weighs the heavier of the two.
_KNOWN = frozenset(Path(__file__).with_name("known_domains.txt").read_text("ascii").split())


def weighted_length(text: str) -> int:
    """Never less than the platform's own count; more only for URLs whose domain it may not know."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n"))
    weight = 0
    end = 0
    for match in _URL.finditer(text):
        weight += _weight_of_words(text[end : match.start()])
        end = match.end()
        shown = hyperlinks.trimmed_end(match[0])
        before = text[max(0, match.start() - 1) : match.start()]
        is_known = match[2].rpartition(".")[2].casefold() in _KNOWN
        is_sure = is_known and not _JOINED_BEFORE.search(before)
        weight += len(match[0]) - len(shown)
        if is_sure and len(shown) <= _MAX_URL_CHARACTERS:
            weight += URL_WEIGHT
        else:
            weight += max(URL_WEIGHT, _weight_of_words(shown))
    return weight + _weight_of_words(text[end:])


def _weight_of_words(text: str) -> int:
    words, emoji = _EMOJI.subn("", text)
    light = sum(any(low <= ord(each) <= high for low, high in _LIGHT) for each in words)
    return 2 * (emoji + len(words)) - light


MAX_SLUG_CHARACTERS = 80
MAX_SUMMARY_CHARACTERS = 300
MAX_TAGS = 8
MIN_TAGS = 3
MAX_TAG_CHARACTERS = 60
MAX_TWEETS = 5
# The length of a tweet or tag before it is fitted: room for the longest URLs.
_MAX_CONSIDERED_CHARACTERS = 4_000

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
    slug = metadata.slug
    summary = metadata.summary
    if slug is not None and (len(slug) > MAX_SLUG_CHARACTERS or not _SLUG.fullmatch(slug)):
        faults.append(f"the slug is not 1 to {MAX_SLUG_CHARACTERS} of a-z, 0-9 and single hyphens")
    if summary is not None:
        faults += _text_faults(summary, "the summary")
        if len(summary) > MAX_SUMMARY_CHARACTERS:
            faults.append(f"the summary is longer than {MAX_SUMMARY_CHARACTERS} characters")
        if not summary and plain.text:
            faults.append("the summary is empty")
    if metadata.tags is not None:
        faults += _tags_faults(plain, metadata.tags)
    return faults


def foreign_faults(plain: PlainPost, metadata: PostMetadata) -> list[str]:
    """Faults of a model's summary and tags; a slug can hold no link, and tweets have own rules."""
    fault = "has a link or a mention that the post doesn't have"
    parts = {"the summary": (metadata.summary or "",), "a tag": metadata.tags or ()}
    return [
        f"{part} {fault}"
        for part, texts in parts.items()
        if any(_foreign(plain, text) for text in texts)
    ]


def tweets_faults(plain: PlainPost, tweets: Sequence[str]) -> list[str]:
    faults = []
    if not 1 <= len(tweets) <= MAX_TWEETS:
        faults.append(f"there are {len(tweets)} tweets, not 1 to {MAX_TWEETS}")
    if len({fold_word(tweet) for tweet in tweets}) < len(tweets):
        faults.append("two tweets are the same")
    for number, tweet in enumerate(tweets, 1):
        found = (*_text_faults(tweet, ""), *_tweet_faults(plain, tweet))
        faults += [f"tweet {number} {fault}" for fault in found]
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
    text = clean(text)
    if len(text) <= MAX_SUMMARY_CHARACTERS:
        return text
    kept = whole_sentences(text, MAX_SUMMARY_CHARACTERS)
    return clean(kept) if kept else _cut(text, MAX_SUMMARY_CHARACTERS, len)


def fit_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags in their own order, without commas, marks around them and repeats."""
    fitting: dict[str, str] = {}
    for tag in tags:
        without_commas = _COMMAS.sub(" ", clean(tag[:_MAX_CONSIDERED_CHARACTERS]))
        text = one_line(without_commas).strip(_AROUND_TAG)
        if len(text) <= MAX_TAG_CHARACTERS and any(map(str.isalnum, text)):
            fitting.setdefault(fold_word(text), text)
    return tuple(fitting.values())[:MAX_TAGS]


def fit_tweets(plain: PlainPost, tweets: Iterable[str]) -> tuple[str, ...]:
    """The tweets without foreign links and mentions, cut to length; none may be left."""
    fitting: dict[str, str] = {}
    for tweet in tweets:
        text = remove_foreign(plain, clean(tweet[:_MAX_CONSIDERED_CHARACTERS]))
        if not _is_fit(plain, text):
            # Links in full-width letters are seen once these are plain ones.
            text = remove_foreign(plain, clean(unicodedata.normalize("NFKC", text)))
        text = _cut(text, MAX_TWEET_WEIGHT, weighted_length)
        # The cut may have left another link's beginning.
        if _is_fit(plain, text):
            fitting.setdefault(fold_word(text), text)
    return tuple(fitting.values())[:MAX_TWEETS]


def remove_foreign(plain: PlainPost, text: str) -> str:
    """The text itself where it has no link and no mention that the post doesn't have."""
    kept = hyperlinks.remove_foreign(text, plain.own_links, plain.mentions)
    return text if kept == text else one_line(kept)


def _foreign(plain: PlainPost, text: str) -> bool:
    links, mentions = hyperlinks.find_links(text), hyperlinks.find_mentions(text)
    return not (links <= plain.own_links and mentions <= plain.mentions)


def _tags_faults(plain: PlainPost, tags: tuple[str, ...]) -> list[str]:
    faults = []
    for tag in tags:
        faults += _text_faults(tag, "a tag")
        if not tag or len(tag) > MAX_TAG_CHARACTERS:
            faults.append(f"a tag is not 1 to {MAX_TAG_CHARACTERS} characters")
        if _COMMAS.search(tag):
            faults.append("a tag holds a comma")
    if len(tags) > MAX_TAGS:
        faults.append(f"there are more than {MAX_TAGS} tags")
    if len(tags) < MIN_TAGS <= len(content_words(plain, MIN_TAGS)):
        faults.append(f"there are fewer than {MIN_TAGS} tags")
    if len({fold_word(tag) for tag in tags}) < len(tags):
        faults.append("two tags are the same")
    return faults


def _tweet_faults(plain: PlainPost, tweet: str) -> list[str]:
    foreign_mentions = hyperlinks.find_mentions(tweet) - plain.mentions
    found = {
        "is empty": not tweet,
        f"weighs more than {MAX_TWEET_WEIGHT}": weighted_length(tweet) > MAX_TWEET_WEIGHT,
        "has a link that the post doesn't have": hyperlinks.find_links(tweet) - plain.own_links,
        "mentions a handle that the post doesn't mention": foreign_mentions,
    }
    return [fault for fault, is_there in found.items() if is_there]


def _text_faults(text: str, what: str) -> list[str]:
    if text != visible_line(text):
        return [f"{what} is not one line of visible text".strip()]
    return [] if text == clean(str(text)) else [f"{what} holds markup".strip()]


def _is_fit(plain: PlainPost, tweet: str) -> bool:
    """Return whether the tweet keeps every rule; what is known to be clean isn't cleaned again."""
    return tweet == clean(tweet) and not _tweet_faults(plain, tweet)


def _cut(text: str, max_length: int, measure: Callable[[str], int]) -> str:
    cut = cut_at_word(text, max_length, measure)
    # Characters that meant nothing may be markup where the text now ends.
    return cut if cut == clean(cut) else cut_at_word(strip_markup(text), max_length, measure)
