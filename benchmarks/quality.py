"""What the offline writer is worth, against first sentences and most frequent words."""

import statistics
from collections import Counter
from dataclasses import dataclass

from benchmarks.corpus import LANGUAGES, Sample, samples
from benchmarks.likeness import precision, rouge_l
from benchmarks.measure import Finding
from services.composer import offline, rules
from services.composer.offline.tokenizers import tokenizer
from services.composer.post import MetadataField, PlainPost
from services.composer.text.markup import read
from services.composer.text.words import sentences_of

_EVERY_PART = frozenset(MetadataField)
_HASH = "0" * 64


@dataclass(frozen=True)
class _Judged:
    language: str
    summary: float
    first_sentences: float
    tags: float
    frequent_words: float
    broken: int
    outputs: int


def run() -> list[Finding]:
    judged = [_judge(sample) for sample in samples()]
    _print(judged)
    broken, outputs = sum(each.broken for each in judged), sum(each.outputs for each in judged)
    share = broken / outputs
    return [
        _compared(
            "quality: summaries, ROUGE-L",
            [each.summary for each in judged],
            [each.first_sentences for each in judged],
            "first sentences",
        ),
        _compared(
            "quality: tags, precision",
            [each.tags for each in judged],
            [each.frequent_words for each in judged],
            "most frequent words",
        ),
        Finding(
            "quality: outputs that break a rule",
            100 * share,
            "%",
            "= 0 %",
            not broken,
            (100 * share, 100 * share),
            {"outputs": outputs},
        ),
    ]


def _compared(name: str, mine: list[float], theirs: list[float], baseline: str) -> Finding:
    """The ratio of the means; its spread is that over the languages' own means."""
    written, plain = statistics.mean(mine), statistics.mean(theirs)
    each = len(mine) // len(LANGUAGES)
    ratios = [
        statistics.mean(mine[start : start + each])
        / max(1e-9, statistics.mean(theirs[start : start + each]))
        for start in range(0, len(mine), each)
    ]
    details = {"writer": round(written, 3), baseline: round(plain, 3)}
    ratio, spread = written / plain, (min(ratios), max(ratios))
    return Finding(name, ratio, "×", "> 1 ×", ratio > 1, spread, details)


def _judge(sample: Sample) -> _Judged:
    plain, language = read(sample.post), sample.language
    written = offline.metadata(plain, _EVERY_PART, _HASH)
    tweets = offline.tweets(plain)
    summary, tags = written.summary or "", written.tags or ()
    frequent = _most_frequent_words(plain, language, len(tags))
    return _Judged(
        language=language,
        summary=rouge_l(summary, sample.summary, language),
        first_sentences=rouge_l(_first_sentences(plain, language), sample.summary, language),
        tags=precision(tags, sample.tags, language),
        frequent_words=precision(frequent, sample.tags, language),
        broken=bool(rules.metadata_faults(plain, written, _EVERY_PART))
        + bool(rules.tweets_faults(plain, tweets)),
        outputs=2,
    )


def _first_sentences(plain: PlainPost, language: str) -> str:
    """As many as a summary has room for."""
    kept: list[str] = []
    room = rules.MAX_SUMMARY_CHARACTERS
    for paragraph in plain.paragraphs:
        for sentence in sentences_of(paragraph, language):
            if len(sentence) > room:
                return " ".join(kept)
            kept.append(sentence)
            room -= len(sentence) + 1
    return " ".join(kept)


def _most_frequent_words(plain: PlainPost, language: str, count: int) -> list[str]:
    """Of those that are no stop words, as many as the writer gave tags."""
    tokenize = tokenizer(language)
    counted = Counter(
        word.surface.casefold()
        for text in (plain.title, *plain.headings, *plain.paragraphs)
        for word in tokenize(text)
        if word.key
    )
    return [word for word, _ in counted.most_common(count)]


def _print(judged: list[_Judged]) -> None:
    print(f"{'':10} {'summary':>8} {'first s.':>9} {'tags':>6} {'frequent w.':>12}")
    for code, name in LANGUAGES.items():
        mine = [each for each in judged if each.language == code]
        print(
            f"{name:10} {statistics.mean(each.summary for each in mine):8.3f} "
            f"{statistics.mean(each.first_sentences for each in mine):9.3f} "
            f"{statistics.mean(each.tags for each in mine):6.2f} "
            f"{statistics.mean(each.frequent_words for each in mine):12.2f}"
        )
