"""What a post's summary and tags are without this writer: its first sentences, LexRank, YAKE.

YAKE and sumy run in an environment of their own, as does the package that checks our ROUGE-L: their
licences and dependencies are none of ours.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.news_pages import FOLDER
from services.composer import rules
from services.composer.offline.document import Document
from services.composer.offline.ranking import similarity

# sumy tells Chinese words apart with jieba.
_PACKAGES = ("yake==0.7.3", "rouge-score==0.1.2", "sumy[chinese]==0.13.0")
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
# For each line of its input one round; it answers with the seconds of both packages.
_SUMY_AND_YAKE = r"""
import json, re, sys
from time import perf_counter
import jieba
from nltk.tokenize import NLTKWordTokenizer
from sumy.nlp.stemmers import Stemmer
from sumy.nlp.tokenizers import Tokenizer
from sumy.parsers.plaintext import PlaintextParser
from sumy.summarizers.text_rank import TextRankSummarizer
from yake import KeywordExtractor

class OfSpacedWords:
    _words = NLTKWordTokenizer()
    def to_sentences(self, paragraph):
        return re.split(r"(?<=[.!?…])\s+", paragraph.strip())
    def to_words(self, sentence):
        return tuple(filter(Tokenizer._is_word, self._words.tokenize(sentence)))

given = json.loads(sys.stdin.readline())
code, name, text = given["code"], given["name"], given["text"]
is_chinese = code == "zh"
jieba.setLogLevel("ERROR")
jieba.dt.tmp_dir = sys.prefix
tokenizer = Tokenizer(name) if is_chinese else OfSpacedWords()
spaced = " ".join(jieba.cut(text)) if is_chinese else text
extractor = KeywordExtractor(lan=code, top=given["tags"])
summarizer = TextRankSummarizer(Stemmer(name))
summarizer.stop_words = extractor.stopword_set
for _ in sys.stdin:
    began = perf_counter()
    summarizer(PlaintextParser.from_string(text, tokenizer).document, given["sentences"])
    summed_up = perf_counter()
    extractor.extract_keywords(spaced)
    print(json.dumps([summed_up - began, perf_counter() - summed_up]), flush=True)
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


@contextmanager
def sumy_and_yake(**given: object) -> Iterator[Callable[[], tuple[float, float]]]:
    """What does one round on the given text, and returns sumy's seconds and YAKE's.

    Their process stays and has all loaded before, so only the work itself counts: sumy's splitting
    and TextRank, and YAKE's key words. NLTK's sentences would need a download, so sumy gets a
    tokenizer that splits after a full stop, and NLTK's words; Chinese it splits with its own. YAKE
    takes words apart at blanks, so it gets Chinese with blanks, which are put there before.
    """
    with subprocess.Popen(
        [_python(), "-W", "ignore", "-c", _SUMY_AND_YAKE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        asked, answers = process.stdin, process.stdout
        assert asked is not None
        assert answers is not None

        def round_of_theirs() -> tuple[float, float]:
            print("round", file=asked, flush=True)
            of_sumy, of_yake = json.loads(answers.readline())
            return of_sumy, of_yake

        print(json.dumps(given), file=asked, flush=True)
        yield round_of_theirs


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
    done = subprocess.run(
        [_python(), "-c", code], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def _python() -> Path:
    """Python of the environment that has these packages, which is made where there is none."""
    environment = FOLDER / "plain-writers"
    python, ready = environment / "bin/python", environment / "ready"
    packages = " ".join(_PACKAGES)
    if not ready.exists() or ready.read_text() != packages:
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
        ready.write_text(packages)
    return python
