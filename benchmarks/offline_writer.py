"""Compares the speed of the offline writer with sumy and YAKE for a post of 2,000 words.

The baseline writes the summary with sumy's TextRank, and the tags with YAKE. Unlike sumy and YAKE,
the offline writer detects the language and creates a slug. The measured time doesn't include
parsing the post. The benchmark's post consists of repeated sample posts from
``benchmarks.corpus``.
"""

from dataclasses import dataclass

from benchmarks import plain_writers
from benchmarks.corpus import LANGUAGES, read_samples
from benchmarks.measure import Finding, alternate, is_full_size, measure_seconds, median_and_spread
from services.composer.offline import writer
from services.composer.offline.document import get_tokenizer
from services.composer.text.markup import parse_post
from services.composer.text.post import MetadataField, PlainPost, Post

_WORDS = 2_000
_MAX_SLOWDOWN = 0.3
_ROUNDS = 15
_MEASURED = ("en", "zh")
_SENTENCES = 3
_TAGS = 6


@dataclass(frozen=True)
class _Subject:
    plain: PlainPost
    language: str


def run() -> list[Finding]:
    languages = tuple(LANGUAGES) if is_full_size() else _MEASURED
    return [_compare(_create_subject(language)) for language in languages]


def _compare(subject: _Subject) -> Finding:
    baseline_rounds: list[tuple[float, float]] = []
    name = LANGUAGES[subject.language]
    with plain_writers.sumy_and_yake(
        code=subject.language,
        name=name.lower(),
        text="\n\n".join((subject.plain.title, *subject.plain.paragraphs)),
        sentences=_SENTENCES,
        tags=_TAGS,
    ) as run_baseline:

        def baseline() -> float:
            baseline_rounds.append(run_baseline())
            return sum(baseline_rounds[-1])

        pairs = alternate(
            lambda: measure_seconds(lambda: _write_metadata(subject)), baseline, rounds=_ROUNDS
        )
    ratio, spread = median_and_spread(
        [product_time / baseline_time for product_time, baseline_time in pairs]
    )
    details = {
        "writer ms": _milliseconds([product_time for product_time, _ in pairs]),
        "sumy ms": _milliseconds([sumy for sumy, _ in baseline_rounds]),
        "YAKE ms": _milliseconds([yake for _, yake in baseline_rounds]),
    }
    bar = f"≤ {_MAX_SLOWDOWN} ×"
    return Finding(
        f"offline-writer: {name}", ratio, "×", bar, ratio <= _MAX_SLOWDOWN, spread, details
    )


def _milliseconds(seconds: list[float]) -> float:
    return round(1000 * median_and_spread(seconds)[0], 1)


def _write_metadata(subject: _Subject) -> None:
    writer.write_metadata(subject.plain, frozenset(MetadataField), "0" * 64)


def _create_subject(language: str) -> _Subject:
    """Return a long post made of the sample posts in one language."""
    tokenize = get_tokenizer(language)
    paragraphs: list[str] = []
    words = 0
    posts = [sample.post for sample in read_samples() if sample.language == language] * 3
    for paragraph in (text for post in posts for text in parse_post(post).paragraphs):
        if words >= _WORDS:
            break
        words += len(tokenize(paragraph))
        paragraphs.append(paragraph)
    post = Post(posts[0].title, "\n\n".join(paragraphs))
    return _Subject(parse_post(post), language)
