from collections.abc import Iterator, Sequence

from services.composer.offline.document import Document
from services.composer.offline.ranking import are_similar, best_first
from services.composer.post import PlainPost
from services.composer.rules import MAX_TWEET_WEIGHT, MAX_TWEETS, fit_tweets, weighted_length
from services.composer.text.characters import ELLIPSIS

_SENTENCES_A_TWEET = 3


def tweets_of(plain: PlainPost, document: Document, scores: Sequence[float]) -> tuple[str, ...]:
    """The title with the best sentence, then other good sentences in the post's order."""
    chosen = list(_different(document, best_first(scores)))
    wanted = min(MAX_TWEETS, 1 + len(document.sentences) // _SENTENCES_A_TWEET)
    texts = [document.sentences[index].text for index in chosen[:1] + sorted(chosen[1:wanted])]
    fitting = fit_tweets(plain, [_opening(plain.title, texts[:1], document.language), *texts[1:]])
    if fitting:
        return fitting
    any_text = (plain.title, *plain.headings[:10], *plain.paragraphs[:10])
    return fit_tweets(plain, any_text)[:1] or (ELLIPSIS,)


def _opening(title: str, best: list[str], language: str) -> str:
    if not best or not title:
        return best[0] if best else title
    colon = "：" if language in {"zh", "ja"} else ": "
    between = " " if title[-1] in ".!?…。！？:：" else colon
    whole = f"{title}{between}{best[0]}"
    if best[0].startswith(title):
        return best[0]
    return whole if weighted_length(whole) <= MAX_TWEET_WEIGHT else best[0]


def _different(document: Document, order: list[int]) -> Iterator[int]:
    """Unlike sentences; those that fit a tweet come first, so that few have to be cut."""
    fits = [
        i for i in order if weighted_length(document.sentences[i].text[:600]) <= MAX_TWEET_WEIGHT
    ]
    seen: list[int] = []
    for index in (*fits, *(i for i in order if i not in set(fits))):
        sentence = document.sentences[index]
        if any(are_similar(sentence, document.sentences[other]) for other in seen):
            continue
        seen.append(index)
        yield index
        if len(seen) == MAX_TWEETS:
            return
