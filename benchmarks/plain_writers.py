"""What a post's summary and tags are without this writer: its first sentences, LexRank, YAKE.

YAKE runs in an environment of its own, as does the package that checks our ROUGE-L: their licences
and dependencies are none of ours.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.news_pages import FOLDER
from services.composer import rules
from services.composer.offline.document import Document
from services.composer.offline.ranking import similarity

_PACKAGES = ("yake==0.7.3", "rouge-score==0.1.2")
# Sentences are alike, for LexRank, from this cosine on (Erkan and Radev 2004).
_ALIKE = 0.1
_DAMPING = 0.85
_ROUNDS = 50

_YAKE = """
import json, sys
from yake import KeywordExtractor
print(json.dumps([
    [phrase for phrase, _ in KeywordExtractor(lan=language, top=count).extract_keywords(text)]
    for language, text, count in json.load(sys.stdin)
]))
"""
_ROUGE = """
import json, sys
from rouge_score.rouge_scorer import RougeScorer
class Units:
    tokenize = staticmethod(lambda text: text.split("\\x1f"))
scorer = RougeScorer(["rougeL"], tokenizer=Units())
print(json.dumps([
    scorer.score(reference, written)["rougeL"].fmeasure
    for written, reference in json.load(sys.stdin)
]))
"""


def first_sentences(document: Document) -> str:
    """As many as a summary has room for."""
    return _fitting(document, range(len(document.sentences)))


def lexrank(document: Document) -> str:
    """The sentences that most others are like, as many as a summary has room for."""
    import numpy as np

    size = len(document.sentences)
    if not size:
        return ""
    alike = similarity(document.sentences) > _ALIKE
    np.fill_diagonal(alike, True)
    steps = alike / alike.sum(axis=1, keepdims=True)
    ranks = np.full(size, 1 / size)
    for _ in range(_ROUNDS):
        ranks = (1 - _DAMPING) / size + _DAMPING * (ranks @ steps)
    return _fitting(document, np.argsort(-ranks, kind="stable").tolist())


def yake(texts: Sequence[tuple[str, str, int]]) -> list[list[str]]:
    """Phrases of each text, which comes with its language's code and how many are wanted."""
    found: list[list[str]] = _outside(_YAKE, texts)
    return found


def rouge_score(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[float]:
    """ROUGE-L of what was written and its reference, both as units, by Google's package."""
    joined = [("\x1f".join(written), "\x1f".join(reference)) for written, reference in pairs]
    found: list[float] = _outside(_ROUGE, joined)
    return found


def _fitting(document: Document, order: Sequence[int]) -> str:
    """Sentences up to the first that doesn't fit, in the post's order."""
    chosen: list[int] = []
    room = rules.MAX_SUMMARY_CHARACTERS
    for index in order:
        text = document.sentences[index].text
        if len(text) > room:
            break
        chosen.append(index)
        room -= len(text) + 1
    kept = sorted(chosen) or order[:1]
    return rules.fit_summary(" ".join(document.sentences[index].text for index in kept))


def _outside(code: str, given: object) -> Any:
    environment = FOLDER / "plain-writers"
    python = environment / "bin/python"
    if not (environment / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
        (environment / "ready").touch()
    done = subprocess.run(
        [python, "-c", code], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)
