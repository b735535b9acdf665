import re

from services.composer.offline.document import Document
from services.composer.offline.japanese import spell_japanese
from services.composer.offline.post_tags import tags_of
from services.composer.post import PlainPost
from services.composer.rules import fit_slug

_MAX_TITLE_CHARACTERS = 400
# Of a post without a title.
_MAX_KEY_WORDS = 8
_MAX_KEY_WORDS_CHARACTERS = 60
# The plain letters with which writers of these languages replace their own.
_SPELLED = {
    "de": str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"}),
    "da": str.maketrans({"å": "aa", "ø": "oe", "æ": "ae", "Å": "Aa", "Ø": "Oe", "Æ": "Ae"}),
}
# Only Japanese has words in kana; a single character may be an ornament.
_KANA_WORD = re.compile("[\u3041-\u3096\u30a1-\u30ff]{2}")


def slug_of(plain: PlainPost, document: Document, content_hash: str) -> str:
    """The title's words, or those that the post is about; `post-…` where there are none."""
    nameless = fit_slug("", content_hash)
    title = _spell(plain.title[:_MAX_TITLE_CHARACTERS], document.language)
    slug = fit_slug(title, content_hash)
    if slug != nameless:
        return slug
    spelled = (_spell(tag, document.language) for tag in tags_of(plain, document))
    slugs = [slug for text in spelled if (slug := fit_slug(text, content_hash)) != nameless]
    return _key_words(slugs) or nameless


def _key_words(slugs: list[str]) -> str:
    """As many words as there is room for, each once; the first is cut if it is too long."""
    words: list[str] = []
    for slug in slugs:
        longer = words + [word for word in slug.split("-") if word not in words]
        fits = len("-".join(longer)) <= _MAX_KEY_WORDS_CHARACTERS
        if fits and len(longer) <= _MAX_KEY_WORDS:
            words = longer
    if slugs and not words:
        return slugs[0][:_MAX_KEY_WORDS_CHARACTERS].strip("-")
    return "-".join(words)


def _spell(text: str, language: str) -> str:
    """In Latin letters as the language has it, as far as more is known than the letters tell."""
    if language == "ja" or _KANA_WORD.search(text):
        return spell_japanese(text)
    if language == "zh":
        from pypinyin import lazy_pinyin
        from rjieba import cut

        return "-".join("".join(lazy_pinyin(word)) for word in cut(text))
    return text.translate(_SPELLED.get(language, {}))
