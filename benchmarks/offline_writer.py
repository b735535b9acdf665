"""All metadata of a post of 2,000 words, against sumy's TextRank and YAKE on the same text.

These two are the summary and the tags alone; the writer also detects the language and makes a slug.
The post is read beforehand, so its reading counts on neither side. It is made of our own posts, one
after another, and again from the first until there are words enough.
"""

from dataclasses import dataclass

from benchmarks import plain_writers
from benchmarks.corpus import LANGUAGES, samples
from benchmarks.measure import Finding, alternate, full_size, median_and_spread, seconds_of
from services.composer import offline
from services.composer.offline.document import get_tokenizer
from services.composer.text.markup import parse_post
from services.composer.text.post import MetadataField, PlainPost, Post

_WORDS = 2_000
_BAR = 0.3
_ROUNDS = 15
_MEASURED = ("en", "zh")
# As much as the writer gives at most.
_SENTENCES, _TAGS = 3, 6


@dataclass(frozen=True)
class _Subject:
    plain: PlainPost
    language: str


def run() -> list[Finding]:
    languages = tuple(LANGUAGES) if full_size() else _MEASURED
    return [_finding(_subject(language)) for language in languages]


def _finding(subject: _Subject) -> Finding:
    theirs: list[tuple[float, float]] = []
    name = LANGUAGES[subject.language]
    with plain_writers.sumy_and_yake(
        code=subject.language,
        name=name.lower(),
        text="\n\n".join((subject.plain.title, *subject.plain.paragraphs)),
        sentences=_SENTENCES,
        tags=_TAGS,
    ) as their_round:

        def baseline() -> float:
            theirs.append(their_round())
            return sum(theirs[-1])

        pairs = alternate(lambda: seconds_of(lambda: _write(subject)), baseline, rounds=_ROUNDS)
    ratio, spread = median_and_spread([mine / others for mine, others in pairs])
    details = {
        "writer ms": _milliseconds([mine for mine, _ in pairs]),
        "sumy ms": _milliseconds([sumy for sumy, _ in theirs]),
        "YAKE ms": _milliseconds([yake for _, yake in theirs]),
    }
    bar = f"≤ {_BAR} ×"
    return Finding(f"offline-writer: {name}", ratio, "×", bar, ratio <= _BAR, spread, details)


def _milliseconds(seconds: list[float]) -> float:
    return round(1000 * median_and_spread(seconds)[0], 1)


def _write(subject: _Subject) -> None:
    offline.write_metadata(subject.plain, frozenset(MetadataField), "0" * 64)


def _subject(language: str) -> _Subject:
    """The language's posts one after another, cut at a paragraph."""
    tokenize = get_tokenizer(language)
    paragraphs: list[str] = []
    words = 0
    posts = [sample.post for sample in samples() if sample.language == language] * 3
    for paragraph in (text for post in posts for text in parse_post(post).paragraphs):
        if words >= _WORDS:
            break
        words += len(tokenize(paragraph))
        paragraphs.append(paragraph)
    post = Post(posts[0].title, "\n\n".join(paragraphs))
    return _Subject(parse_post(post), language)
