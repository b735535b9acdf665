import re
from collections.abc import Sequence

from services.composer.offline.document import Document
from services.composer.offline.ranking import are_similar, best_first
from services.composer.post import PlainPost
from services.composer.rules import MAX_SUMMARY_CHARACTERS, fit_summary

# Chinese and Japanese put no space after a sentence.
_UNSPACED_STOP = re.compile(r"([。！？][”』」）]?) ")
_MAX_SUMMARY_SENTENCES = 3
# A sentence is worth its room only if it comes near the best one.
_WORTH = 0.65


def summary_of(plain: PlainPost, document: Document, scores: Sequence[float]) -> str:
    """The best sentences that fit together, in the post's order; empty only without text."""
    chosen: list[int] = []
    room = MAX_SUMMARY_CHARACTERS
    for index in best_first(scores):
        sentence = document.sentences[index]
        if len(chosen) == _MAX_SUMMARY_SENTENCES or (
            chosen and scores[index] < _WORTH * scores[chosen[0]]
        ):
            break
        seen = any(are_similar(sentence, document.sentences[other]) for other in chosen)
        if len(sentence.text) <= room and not seen:
            chosen.append(index)
            room -= len(sentence.text) + 1
    if chosen:
        text = " ".join(document.sentences[index].text for index in sorted(chosen))
        return fit_summary(_UNSPACED_STOP.sub(r"\1", text))
    first = (*(sentence.text for sentence in document.sentences[:1]), *plain.headings, plain.title)
    return next((fit for text in first if (fit := fit_summary(text))), "")
