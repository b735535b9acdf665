from collections.abc import Iterator, Sequence

from services.composer.offline.document import Document
from services.composer.offline.ranking import are_similar, best_first
from services.composer.post import PlainPost
from services.composer.rules import MAX_TWEETS, fit_tweets
from services.composer.text.characters import ELLIPSIS
from services.composer.text.tweet_length import MAX_TWEET_WEIGHT, weighted_length

_SENTENCES_A_TWEET = 3


def tweets_of(plain: PlainPost, document: Document, scores: Sequence[float]) -> tuple[str, ...]:
    """The title with the best sentence, then other good sentences in the post's order."""
    chosen = list(_different(document, best_first(scores)))
    wanted = min(MAX_TWEETS, 1 + len(document.sentences) // _SENTENCES_A_TWEET)
    texts = [document.sentences[index].text for index in chosen[:1] + sorted(chosen[1:wanted])]
    opening = texts[0] if texts else plain.title
    if plain.title and not opening.startswith(plain.title):
        colon = "：" if document.language in {"zh", "ja"} else ": "
        between = " " if plain.title[-1] in ".!?…。！？:：" else colon
        whole = f"{plain.title}{between}{opening}"
        opening = whole if weighted_length(whole) <= MAX_TWEET_WEIGHT else opening
    if fitting := fit_tweets(plain, [opening, *texts[1:]]):
        return fitting
    any_text = (plain.title, *plain.headings[:10], *plain.paragraphs[:10])
    return fit_tweets(plain, any_text)[:1] or (ELLIPSIS,)


def _different(document: Document, order: list[int]) -> Iterator[int]:
    """Unlike sentences; those that fit a tweet come first, so that few have to be cut."""
    fits = [
        i for i in order if weighted_length(document.sentences[i].text[:600]) <= MAX_TWEET_WEIGHT
    ]
    seen: list[int] = []
    for index in (*fits, *(i for i in order if i not in set(fits))):
        sentence = document.sentences[index]
        if not any(are_similar(sentence, document.sentences[other]) for other in seen):
            seen.append(index)
            yield index
        if len(seen) == MAX_TWEETS:
            return
