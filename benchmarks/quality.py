"""What the offline writer is worth beside first sentences, LexRank and YAKE.

Half of our own posts were looked at when rules and weights were chosen; the other half, and the
pages of real sites, were held back. What is found is of these alone.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks import plain_writers
from benchmarks.corpus import samples
from benchmarks.likeness import precision, rouge_l, units
from benchmarks.measure import Finding
from benchmarks.news_pages import news_pages
from services.composer import offline, rules
from services.composer.offline.document import document_of
from services.composer.offline.language import language_of
from services.composer.post import MetadataField, PlainPost
from services.composer.text.markup import read

_EVERY_PART = frozenset(MetadataField)
_HASH = "0" * 64
_CHOSEN_ON, _POSTS, _PAGES = "posts looked at", "posts held back", "pages held back"
_FIRST_SENTENCES, _LEXRANK, _YAKE = "first sentences", "LexRank", "YAKE"
_MIN_KEY_WORDS = 3
_MIN_OF_A_LANGUAGE = 0.9


@dataclass(frozen=True)
class _Text:
    part: str
    language: str
    plain: PlainPost
    summary: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class _Judged:
    text: _Text
    # ROUGE-L by who wrote it.
    summaries: dict[str, float]
    # Precision by who wrote it; empty without enough key words to compare with.
    tags: dict[str, float]
    # What was written, by who wrote it.
    written: dict[str, str]
    own_tags: tuple[str, ...]
    broken: int


def run() -> list[Finding]:
    judged = _with_yake([_judge(text) for text in _texts()])
    for part in (_CHOSEN_ON, _POSTS, _PAGES):
        _print(part, [each for each in judged if each.text.part == part])
    held = [each for each in judged if each.text.part != _CHOSEN_ON]
    summaries = [(each.text.language, each.summaries) for each in held]
    tags = [(each.text.language, each.tags) for each in held if each.tags]
    return [
        *_compared("summaries, ROUGE-L", summaries, _FIRST_SENTENCES),
        *_compared("summaries, ROUGE-L", summaries, _LEXRANK),
        *_compared("tags, precision", tags, _YAKE),
        _checked(judged),
        _broken(judged),
    ]


def _texts() -> Iterator[_Text]:
    for number, sample in enumerate(samples()):
        part = _POSTS if number % 2 else _CHOSEN_ON
        yield _Text(part, sample.language, read(sample.post), sample.summary, sample.tags)
    for page in news_pages():
        plain = read(page.post)
        tags = page.key_words if len(page.key_words) >= _MIN_KEY_WORDS else ()
        yield _Text(_PAGES, language_of(plain), plain, page.description, tags)


def _judge(text: _Text) -> _Judged:
    metadata = offline.metadata(text.plain, _EVERY_PART, _HASH)
    document = document_of(text.plain)
    written = {
        "writer": metadata.summary or "",
        _FIRST_SENTENCES: plain_writers.first_sentences(document),
        _LEXRANK: plain_writers.lexrank(document),
    }
    own_tags = metadata.tags or ()
    tags = {"writer": precision(own_tags, text.tags, text.language)} if text.tags else {}
    faults = rules.metadata_faults(text.plain, metadata, _EVERY_PART)
    faults += rules.tweets_faults(text.plain, offline.tweets(text.plain))
    summaries = {who: rouge_l(summary, text.summary) for who, summary in written.items()}
    return _Judged(text, summaries, tags, written, own_tags, bool(faults))


def _with_yake(judged: Sequence[_Judged]) -> list[_Judged]:
    """As many phrases as the writer gave tags."""
    given = [
        (each.text.language, "\n".join((each.text.plain.title, *each.text.plain.paragraphs)))
        for each in judged
    ]
    asked = [(*text, len(each.own_tags)) for text, each in zip(given, judged, strict=True)]
    return [
        replace(
            each, tags={**each.tags, _YAKE: precision(phrases, each.text.tags, each.text.language)}
        )
        if each.tags
        else each
        for each, phrases in zip(judged, plain_writers.yake(asked), strict=True)
    ]


def _compared(
    what: str, figures: Sequence[tuple[str, dict[str, float]]], baseline: str
) -> Iterator[Finding]:
    """The ratio of the means, with the languages' own beside it; and the worst of those."""
    mine, theirs = _means([figure for _, figure in figures], baseline)
    by_language = {
        language: _means([figure for code, figure in figures if code == language], baseline)
        for language in sorted({code for code, _ in figures})
    }
    ratios = {code: _ratio(*means) for code, means in by_language.items()}
    spread = (min(ratios.values()), max(ratios.values()))
    details: dict[str, object] = {"writer": round(mine, 3), baseline: round(theirs, 3)}
    details |= {"texts": len(figures), "languages": len(ratios)}
    ratio = _ratio(mine, theirs)
    yield Finding(f"quality: {what}, {baseline}", ratio, "×", "≥ 1 ×", ratio >= 1, spread, details)
    worst = min(ratios, key=lambda code: ratios[code])
    yield Finding(
        f"quality: {what}, {baseline}, worst language",
        ratios[worst],
        "×",
        f"≥ {_MIN_OF_A_LANGUAGE} ×",
        ratios[worst] >= _MIN_OF_A_LANGUAGE,
        spread,
        {code: f"{own:.3f} to {other:.3f}" for code, (own, other) in by_language.items()},
    )


def _checked(judged: Sequence[_Judged]) -> Finding:
    """How far our ROUGE-L is from that of the package that others measure with."""
    pairs = [
        (units(summary), units(each.text.summary))
        for each in judged
        for summary in each.written.values()
    ]
    ours = [figure for each in judged for figure in each.summaries.values()]
    theirs = plain_writers.rouge_score(pairs)
    most = max(abs(mine - other) for mine, other in zip(ours, theirs, strict=True))
    # Beyond the last digits, which the order of sums decides.
    return Finding(
        "quality: ROUGE-L, beside rouge-score",
        most,
        "",
        "= 0",
        most < 1e-9,
        (0.0, most),
        {"summaries": len(pairs)},
    )


def _broken(judged: Sequence[_Judged]) -> Finding:
    share = 100 * statistics.mean(each.broken for each in judged)
    spread = (share, share)
    name = "quality: outputs that break a rule"
    return Finding(name, share, "%", "= 0 %", not share, spread, {"posts": len(judged)})


def _means(figures: Sequence[dict[str, float]], baseline: str) -> tuple[float, float]:
    mine = statistics.mean(figure["writer"] for figure in figures)
    return mine, statistics.mean(figure[baseline] for figure in figures)


def _ratio(mine: float, theirs: float) -> float:
    """1 where neither has anything right."""
    if theirs:
        return mine / theirs
    return 2.0 if mine else 1.0


def _print(part: str, judged: Sequence[_Judged]) -> None:
    writers = ("writer", _FIRST_SENTENCES, _LEXRANK)
    print(f"\n{part:<22}{''.join(f'{name:>17}' for name in (*writers, 'tags', _YAKE))}")
    languages = sorted({each.text.language for each in judged})
    for name, of in [*((code, {code}) for code in languages), ("all", set(languages))]:
        mine = [each for each in judged if each.text.language in of]
        figures = [statistics.mean(each.summaries[who] for each in mine) for who in writers]
        tagged = [each.tags for each in mine if each.tags]
        if tagged:
            figures += _means(tagged, _YAKE)
        print(f"{name:<12}{len(mine):>10}{''.join(f'{figure:>17.3f}' for figure in figures)}")
