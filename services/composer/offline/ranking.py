"""Ranks a post's sentences: by how many others resemble them, how early they are, and its title.

Centrality is TextRank's (Mihalcea and Tarau 2004) over the cosine of words weighted by their
rarity among the post's sentences; position and title are the features of Edmundson (1969).
"""

from collections.abc import Sequence
from math import log1p
from typing import TYPE_CHECKING

from services.composer.offline import cues
from services.composer.offline.document import Document, Sentence

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float64]

_DAMPING = 0.85
_ROUNDS = 20
_OF_POSITION = 0.5
_OF_TITLE = 1.0
_OF_OPENING = 0.1
# Position counts half as much after so many sentences.
_HALF_AFTER = 4.0
MIN_SENTENCE_WORDS = 8
_MAX_SENTENCE_WORDS = 45
_ALIKE = 0.6


def scores_of(document: Document) -> list[float]:
    """A score for each sentence, comparable within one post only."""
    if not document.sentences:
        return []
    import numpy as np

    similar = similarity(document.sentences)
    size = len(similar)
    sums = similar.sum(axis=1, keepdims=True)
    steps = np.divide(similar, sums, out=np.full_like(similar, 1.0 / size), where=sums > 0)
    ranks = np.full(size, 1.0 / size)
    for _ in range(_ROUNDS):
        ranks = (1 - _DAMPING) / size + _DAMPING * (ranks @ steps)
    central = (ranks / max(float(np.max(ranks)), 1e-9)).tolist()
    title = {word.key for word in document.title if word.key}
    scores = []
    for index, sentence in enumerate(document.sentences):
        early = _OF_POSITION * _HALF_AFTER / (_HALF_AFTER + index)
        shared = len(title & sentence.keys()) / len(title) if title else 0.0
        features = early + _OF_TITLE * shared + _OF_OPENING * sentence.opens
        scores.append((central[index] + features) * _fitness(sentence, document.language))
    return scores


def best_first(scores: Sequence[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda index: (-scores[index], index))


def are_similar(one: Sentence, other: Sentence) -> bool:
    """Whether most words of the shorter sentence are in the other."""
    mine, theirs = one.keys(), other.keys()
    return len(mine & theirs) > _ALIKE * max(1, min(len(mine), len(theirs)))


def _fitness(sentence: Sentence, language: str) -> float:
    """Questions, fragments, anecdotes and backward references say little by themselves."""
    fitness = 1.0 if sentence.whole else 0.3
    if "?" in sentence.text or "？" in sentence.text:
        fitness *= 0.5
    if not MIN_SENTENCE_WORDS <= len(sentence.words) <= _MAX_SENTENCE_WORDS:
        fitness *= 0.6
    words = [word.plain for word in sentence.words]
    if not cues.first_person(language).isdisjoint(words):
        fitness *= 0.7
    if words and words[0] in cues.points_back(language):
        fitness *= 0.85
    return fitness


def similarity(sentences: tuple[Sentence, ...]) -> "Matrix":
    """Cosines, word by word: most words are in few sentences."""
    import numpy as np

    size = len(sentences)
    places: dict[str, dict[int, int]] = {}
    for row, sentence in enumerate(sentences):
        for word in sentence.words:
            if word.key:
                counts = places.setdefault(word.key, {})
                counts[row] = counts.get(row, 0) + 1
    similar = np.zeros((size, size))
    squares = np.full(size, 1e-9)
    for counts in places.values():
        rows = list(counts)
        weights = np.array(list(counts.values())) * log1p(size / len(counts))
        squares[rows] += weights * weights
        if len(rows) > 1:
            similar[np.ix_(rows, rows)] += np.outer(weights, weights)
    norms = np.sqrt(squares)
    similar /= np.outer(norms, norms)
    np.fill_diagonal(similar, 0.0)
    return similar
