"""Runs the packages sumy and YAKE as baselines of the offline writer.

The packages run in a separate Python environment, because the product must not depend on sumy or
YAKE.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# ``sumy[chinese]`` also installs jieba, which splits Chinese text into words.
_PACKAGES = ("yake==0.7.3", "sumy[chinese]==0.13.0")

# A program that runs sumy and YAKE for each input line, and prints the seconds that each package
# took.
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

options = json.loads(sys.stdin.readline())
code, name, text = options["code"], options["name"], options["text"]
is_chinese = code == "zh"
jieba.setLogLevel("ERROR")
jieba.dt.tmp_dir = sys.prefix
tokenizer = Tokenizer(name) if is_chinese else OfSpacedWords()
spaced = " ".join(jieba.cut(text)) if is_chinese else text
extractor = KeywordExtractor(lan=code, top=options["tags"])
summarizer = TextRankSummarizer(Stemmer(name))
summarizer.stop_words = extractor.stopword_set
for _ in sys.stdin:
    began = perf_counter()
    summarizer(PlaintextParser.from_string(text, tokenizer).document, options["sentences"])
    summed_up = perf_counter()
    extractor.extract_keywords(spaced)
    print(json.dumps([summed_up - began, perf_counter() - summed_up]), flush=True)
"""


@contextmanager
def sumy_and_yake(**options: object) -> Iterator[Callable[[], tuple[float, float]]]:
    """Yield a function that runs sumy and YAKE once and returns the seconds that each of them took.

    All libraries and data of sumy and YAKE are loaded before the first round. A regular expression
    splits the text into sentences, because NLTK's sentence tokenizer would need a download. The
    program inserts spaces between Chinese words before the first round, because YAKE splits words
    at spaces.
    """
    with subprocess.Popen(
        [_prepare_python(), "-W", "ignore", "-c", _SUMY_AND_YAKE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        requests = process.stdin
        answers = process.stdout
        assert requests is not None
        assert answers is not None

        def run_round() -> tuple[float, float]:
            print("round", file=requests, flush=True)
            sumy_seconds, yake_seconds = json.loads(answers.readline())
            return sumy_seconds, yake_seconds

        print(json.dumps(options), file=requests, flush=True)
        yield run_round


def _prepare_python() -> Path:
    """Create the Python environment for sumy and YAKE if necessary."""
    environment = Path("build/plain-writers")
    python = environment / "bin/python"
    ready = environment / "ready"
    packages = " ".join(_PACKAGES)
    if not ready.exists() or ready.read_text() != packages:
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
        ready.write_text(packages)
    return python
