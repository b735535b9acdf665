from concurrent.futures import ThreadPoolExecutor

import pytest

from services.composer.offline import writer
from services.composer.offline.document import spell_japanese, split_morphemes
from services.composer.rules import fit_slug
from services.composer.text.characters import romanise_kana
from services.composer.text.markup import parse_post
from services.composer.text.post import MetadataField, Post

HASH = "89abcdef" * 8


def write_slug(title: str, content: str = "") -> str:
    plain = parse_post(Post(title, content))
    return writer.write_metadata(plain, frozenset({MetadataField.SLUG}), HASH).slug or ""


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Über die Brücke gehen wir heute", "ueber-die-bruecke-gehen-wir-heute"),
        ("重庆音乐节", "chongqing-yinyuejie"),
        ("Cómo perdimos el miedo en la redacción", "como-perdimos-el-miedo-en-la-redaccion"),
        ("Почему мы плохо спим", "pochemu-my-plokho-spim"),
        ("서울 여행", "seoul-yeohaeng"),
        ("東京から電車で鎌倉へ", "tokyo-kara-densha-de-kamakura-e"),
        ("ラーメンは、どこで食べますか", "ramen-wa-doko-de-tabemasu-ka"),
        ("OpenAIの新しいモデル、2026年に公開", "openai-no-atarashii-moderu-2026-nen-ni-kokai"),
    ],
)
def test_slug_romanises_the_title_by_the_rules_of_its_language(title: str, expected: str) -> None:
    assert write_slug(title) == expected


@pytest.mark.parametrize(
    ("title", "content", "expected"),
    [
        # The pronunciation of 京都 depends on the language, and the rest of the post is in English.
        ("Visiting 京都 in 2026", "We went there by train, and it was quiet.", "visiting-in-2026"),
        # The kana show that the text is Japanese, but no dictionary contains the characters 犇 and
        # 麤.
        ("犇麤のカメラ", "", "no-kamera"),
        ("犇麤", "犇麤、ヱヴァとカメラ。", "kamera-eva"),
    ],
)  # fmt: skip
def test_slug_omits_characters_without_a_known_reading(
    title: str, content: str, expected: str
) -> None:
    assert write_slug(title, content) == expected


def test_slug_omits_chinese_characters_of_unknown_language_or_falls_back_to_the_hash() -> None:
    assert fit_slug("東京", HASH) == "post-89abcdef"
    assert fit_slug("東京 2026 タワー", HASH) == "2026-tawa"


@pytest.mark.parametrize(
    ("kana", "expected"),
    [
        ("トウキョウ", "tokyo"),
        ("オオサカ", "osaka"),
        ("まっちゃ", "matcha"),
        ("ガッコウ", "gakko"),
        ("コンピューター", "konpyuta"),
        ("しゅうまい", "shumai"),
        ("ヴァイオリン", "vaiorin"),
        ("パーティー", "pati"),
        ("じゅく", "juku"),
        ("かっ", "ka"),
        ("ッ", ""),
        ("abc", "abc"),
    ],
)
def test_kana_are_romanised_by_the_hepburn_system(kana: str, expected: str) -> None:
    assert romanise_kana(kana) == expected


def test_japanese_verb_ending_is_not_romanised_as_a_long_vowel() -> None:
    assert spell_japanese("学校に通う").split() == ["gakko", "ni", "kayou"]


def test_slug_of_post_without_title_is_built_from_its_key_words() -> None:
    content = (
        "It was a grey morning when we left the house, and nobody had slept much. "
        "The bakery on the corner bakes sourdough bread. The bakery sells its bread by noon. "
        "A bakery needs flour, and good flour makes good sourdough bread."
    )
    words = write_slug("", content).split("-")
    assert {"bakery", "bread", "flour"} <= set(words)
    assert len(words) == len(set(words)) <= 8
    assert set(words) <= set(content.lower().replace(".", "").replace(",", "").split())


@pytest.mark.parametrize("word", ["incomprehensibilities", "x" * 200, "ข่าวสารบ้านเมือง", "新闻"])
def test_key_word_slug_has_at_most_8_words_and_60_characters(word: str) -> None:
    content = ". ".join(
        f"{word}{number} {word}{letter}" for number, letter in enumerate("abcdefgh")
    )
    slug = write_slug("", f"{content}. ")
    assert 1 <= len(slug) <= 60
    assert len(slug.split("-")) <= 8


@pytest.mark.parametrize("character", ["紅", "㌔", "﷽", "ﷺ", "𠮷", "ア", "の"])
def test_japanese_paragraph_longer_than_the_tokenizer_limit_is_read_completely(
    character: str,
) -> None:
    text = character * 20_000
    assert "".join(word.surface for word in split_morphemes(text)) == text


def test_japanese_tokenizer_is_safe_for_concurrent_threads() -> None:
    text = "京都の紅葉は十一月に見頃を迎えます。" * 50
    expected_morphemes = split_morphemes(text)
    with ThreadPoolExecutor(8) as threads:
        assert all(
            morphemes == expected_morphemes
            for morphemes in threads.map(split_morphemes, [text] * 64)
        )
