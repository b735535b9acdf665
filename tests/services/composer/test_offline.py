import json
import os
import subprocess
import sys

import pytest

from benchmarks.corpus import Sample, read_samples
from services.composer import rules
from services.composer.offline import writer
from services.composer.offline.document import detect_language
from services.composer.text.markup import parse_post
from services.composer.text.post import MetadataField, Post, PostMetadata
from services.composer.text.words import split_sentences

# The dictionaries of some languages take seconds to load.
pytestmark = pytest.mark.slow
ALL_FIELDS = frozenset(MetadataField)
HASH = "89abcdef" * 8

for_each_sample = pytest.mark.parametrize("sample", read_samples(), ids=lambda sample: sample.name)


def write_metadata(title: str, content: str) -> PostMetadata:
    return writer.write_metadata(parse_post(Post(title, content)), ALL_FIELDS, HASH)


@for_each_sample
def test_offline_composer_detects_language_and_writes_valid_metadata_and_tweets(
    sample: Sample,
) -> None:
    plain = parse_post(sample.post)
    metadata = writer.write_metadata(plain, ALL_FIELDS, HASH)
    tweets = writer.write_tweets(plain)
    assert detect_language(plain) == sample.language
    assert rules.find_metadata_faults(plain, metadata, ALL_FIELDS) == []
    assert rules.find_tweets_faults(plain, tweets) == []
    assert len(metadata.tags or ()) >= 5
    assert len(tweets) >= 3


@for_each_sample
def test_offline_summary_consists_of_whole_sentences_of_the_post(sample: Sample) -> None:
    plain = parse_post(sample.post)
    summary = writer.write_metadata(plain, frozenset({MetadataField.SUMMARY}), HASH).summary or ""
    for paragraph in plain.paragraphs:
        for sentence in split_sentences(paragraph, sample.language):
            summary = summary.replace(sentence, "", 1)
    assert summary.strip() == ""


def test_post_without_words_gets_slug_from_its_hash_and_empty_metadata() -> None:
    metadata = write_metadata("", "<img src=x>")
    assert metadata == PostMetadata(slug="post-89abcdef", summary="", tags=())
    assert writer.write_tweets(parse_post(Post("", "<img src=x>"))) == ("…",)


@pytest.mark.parametrize(
    "content",
    [
        "京都の紅葉は十一月に見頃を迎えます。今年は気温が高く、例年より遅いと予想されています。",
        "서울의 새로운 도서관이 다음 달에 문을 엽니다. 시민들은 책과 도구를 빌릴 수 있습니다.",
        "ห้องสมุดแห่งใหม่ จะเปิดเดือนหน้า ในกรุงเทพ ประชาชนยืมหนังสือได้",
        "تفتح المكتبة الجديدة أبوابها الشهر المقبل. يمكن للسكان استعارة الكتب والأدوات مجانا.",
        "हैदराबाद का नया पुस्तकालय अगले महीने खुलेगा। लोग किताबें और औज़ार उधार ले सकेंगे।",
        "Η νέα βιβλιοθήκη ανοίγει τον άλλο μήνα. Οι κάτοικοι θα δανείζονται εργαλεία.",
    ],
)
def test_offline_composer_writes_valid_metadata_in_other_scripts(content: str) -> None:
    plain = parse_post(Post("", content))
    metadata = writer.write_metadata(plain, ALL_FIELDS, HASH)
    assert rules.find_metadata_faults(plain, metadata, ALL_FIELDS) == []
    assert rules.find_tweets_faults(plain, writer.write_tweets(plain)) == []
    assert len(metadata.tags or ()) >= 3
    assert not (metadata.slug or "").startswith("post-")


def test_tags_include_words_from_the_middle_of_a_long_post_without_other_words() -> None:
    paragraphs = ["77"] * 2000
    paragraphs[1007] = "alpha beta gamma."
    plain = parse_post(Post("", "\n\n".join(paragraphs)))
    metadata = writer.write_metadata(plain, frozenset({MetadataField.TAGS}), "0" * 16)
    assert metadata.tags is not None
    assert len(metadata.tags) >= 3


_WRITE_SCRIPT = """
import json, sys
from benchmarks.corpus import read_samples
from services.composer.offline import writer
from services.composer.text.post import MetadataField
from services.composer.text.markup import parse_post
for sample in read_samples():
    plain = parse_post(sample.post)
    found = writer.write_metadata(plain, frozenset(MetadataField), "0" * 64)
    print(json.dumps([found.slug, found.summary, found.tags, writer.write_tweets(plain)]))
"""
_LOAD_COMPOSER_SCRIPT = """
import json, sys
import services.composer.offline.writer, services.composer.text.markup, services.composer.rules
print(json.dumps(sorted(sys.modules)))
"""
_LOAD_API_SCRIPT = "import json, sys, api.app; print(json.dumps(sorted(sys.modules)))"
_DICTIONARY_MODULES = frozenset(
    "numpy py3langid rjieba pypinyin sentencex Stemmer stopwordsiso sudachipy".split()
)


def _run(code: str, hash_seed: str) -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.tier("processes")
def test_offline_composer_writes_the_same_output_in_every_process() -> None:
    assert _run(_WRITE_SCRIPT, "1") == _run(_WRITE_SCRIPT, "4711")


def test_composer_worker_loads_no_language_models_before_its_first_text() -> None:
    modules = set(json.loads(_run(_LOAD_COMPOSER_SCRIPT, "0")))
    assert not modules & _DICTIONARY_MODULES


def test_api_process_loads_no_language_dictionaries() -> None:
    assert _DICTIONARY_MODULES.isdisjoint(json.loads(_run(_LOAD_API_SCRIPT, "0")))
