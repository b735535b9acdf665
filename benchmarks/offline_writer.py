"""All metadata of a post of 2,000 words, against the slowest of the libraries' steps alone.

The post is read beforehand, so its reading counts on neither side.
"""

from collections.abc import Callable
from dataclasses import dataclass

import rjieba
from py3langid import classify
from Stemmer import Stemmer

from benchmarks.corpus import LANGUAGES, samples
from benchmarks.measure import Finding, alternate, full_size, median_and_spread, seconds_of
from services.composer import offline
from services.composer.offline.tokenizers import tokenizer
from services.composer.post import MetadataField, PlainPost, Post
from services.composer.text.markup import read
from services.composer.text.words import sentences_of, words_of

_WORDS = 2_000
_BAR = 1.5
_ROUNDS = 15
_MEASURED = ("en", "zh")


@dataclass(frozen=True)
class _Subject:
    plain: PlainPost
    language: str


def run() -> list[Finding]:
    languages = tuple(LANGUAGES) if full_size() else _MEASURED
    return [_finding(_subject(language)) for language in languages]


def _finding(subject: _Subject) -> Finding:
    steps = _library_steps(subject)
    alone = {name: min(seconds_of(step) for _ in range(3)) for name, step in steps.items()}
    slowest = max(alone, key=lambda name: alone[name])
    pairs = alternate(
        lambda: seconds_of(lambda: _write(subject)),
        lambda: seconds_of(steps[slowest]),
        rounds=_ROUNDS,
    )
    ratio, spread = median_and_spread([mine / theirs for mine, theirs in pairs])
    milliseconds = median_and_spread([1000 * mine for mine, _ in pairs])[0]
    details: dict[str, object] = {"slowest step": slowest, "writer ms": round(milliseconds, 1)}
    details |= {f"{name} ms": round(1000 * seconds, 1) for name, seconds in alone.items()}
    name = f"offline-writer: {LANGUAGES[subject.language]}"
    return Finding(name, ratio, "×", f"≤ {_BAR} ×", ratio <= _BAR, spread, details)


def _write(subject: _Subject) -> None:
    offline.metadata(subject.plain, frozenset(MetadataField), "0" * 64)


def _library_steps(subject: _Subject) -> dict[str, Callable[[], object]]:
    """Each as the writer needs it, on the whole post."""
    paragraphs, language = subject.plain.paragraphs, subject.language
    text = "\n".join(paragraphs)
    steps: dict[str, Callable[[], object]] = {
        "sentencex": lambda: [sentences_of(paragraph, language) for paragraph in paragraphs],
    }
    if language == "zh":
        steps["rjieba"] = lambda: [rjieba.tag(paragraph) for paragraph in paragraphs]
        return steps
    words = words_of(text)
    stemmer = Stemmer(LANGUAGES[language].lower())
    steps["py3langid"] = lambda: classify(text)
    steps["PyStemmer"] = lambda: stemmer.stemWords(words)
    return steps


def _subject(language: str) -> _Subject:
    """The language's posts one after another, cut at a paragraph."""
    tokenize = tokenizer(language)
    paragraphs: list[str] = []
    words = 0
    posts = [sample.post for sample in samples() if sample.language == language] * 3
    for paragraph in (text for post in posts for text in read(post).paragraphs):
        if words >= _WORDS:
            break
        words += len(tokenize(paragraph))
        paragraphs.append(paragraph)
    post = Post(posts[0].title, "\n\n".join(paragraphs))
    return _Subject(read(post), language)
