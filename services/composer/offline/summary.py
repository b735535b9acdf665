import re
from collections.abc import Sequence

from services.composer.offline.document import Document
from services.composer.offline.news import opens_as_news
from services.composer.offline.ranking import MIN_SENTENCE_WORDS, are_similar, best_first
from services.composer.post import PlainPost
from services.composer.rules import MAX_SUMMARY_CHARACTERS, fit_summary

# Chinese and Japanese put no space after a sentence.
_UNSPACED_STOP = re.compile(r"([。！？][”』」）]?) ")
_MAX_SUMMARY_SENTENCES = 3
# A sentence is worth its room only if it comes near the best one.
_WORTH = 0.65


def summary_of(plain: PlainPost, document: Document, scores: Sequence[float]) -> str:
    """News' first sentences; else the best that fit together, in the post's order.

    It is empty only without text.
    """
    only_lists = all(sentence.listed for sentence in document.sentences)
    is_news = opens_as_news(document) and not only_lists
    chosen = _first(document) if is_news else _best(document, scores)
    if chosen:
        text = " ".join(document.sentences[index].text for index in sorted(chosen))
        return fit_summary(_UNSPACED_STOP.sub(r"\1", text))
    opening = sorted(document.sentences, key=lambda sentence: sentence.listed)[:1]
    texts = (*(sentence.text for sentence in opening), *plain.headings, plain.title)
    return next((fit for text in texts if (fit := fit_summary(text))), "")


def _first(document: Document) -> list[int]:
    """As many as fit, up to the first list; captions and the like between them are left out."""
    chosen: list[int] = []
    room = MAX_SUMMARY_CHARACTERS
    has_whole = any(sentence.whole and not sentence.listed for sentence in document.sentences)
    for index, sentence in enumerate(document.sentences):
        if chosen and sentence.listed:
            break
        if sentence.listed or (has_whole and not sentence.whole):
            continue
        if len(sentence.text) > room:
            break
        chosen.append(index)
        room -= len(sentence.text) + 1
    return chosen


def _best(document: Document, scores: Sequence[float]) -> list[int]:
    """Best first; of lists only where there is hardly anything else, since they'd be cut short."""
    chosen: list[int] = []
    room = MAX_SUMMARY_CHARACTERS
    has_prose = any(
        sentence.whole and not sentence.listed and len(sentence.words) >= MIN_SENTENCE_WORDS
        for sentence in document.sentences
    )
    for index in best_first(scores):
        sentence = document.sentences[index]
        if len(chosen) == _MAX_SUMMARY_SENTENCES or (
            chosen and scores[index] < _WORTH * scores[chosen[0]]
        ):
            break
        if sentence.listed and has_prose:
            continue
        seen = any(are_similar(sentence, document.sentences[other]) for other in chosen)
        if len(sentence.text) <= room and not seen:
            chosen.append(index)
            room -= len(sentence.text) + 1
    return chosen
