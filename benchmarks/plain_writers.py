"""sumy's TextRank and YAKE's key words, to compare with.

They run in an environment of their own: their licences and dependencies are none of ours.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# sumy tells Chinese words apart with jieba.
_PACKAGES = ("yake==0.7.3", "sumy[chinese]==0.13.0")

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


@contextmanager
def sumy_and_yake(**given: object) -> Iterator[Callable[[], tuple[float, float]]]:
    """Yield a function that does one round on the text, and returns sumy's seconds and YAKE's.

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


def _python() -> Path:
    """Python of the environment that has these packages, which is made where there is none."""
    environment = Path("build/plain-writers")
    python, ready = environment / "bin/python", environment / "ready"
    packages = " ".join(_PACKAGES)
    if not ready.exists() or ready.read_text() != packages:
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
        ready.write_text(packages)
    return python
