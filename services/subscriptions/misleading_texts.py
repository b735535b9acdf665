"""Rejects texts by owners that could mislead the readers of pages and mails.

Texts must not contain links, ask for secrets, or use Pressroom's name.
"""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from core.errors.mailing import TEXT_LEADS_AWAY, TEXT_MISLEADING
from core.languages.shown_lines import fold_words, has_direction
from core.settings import Settings
from services.accounts import quoted_texts

_PHRASES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def require_harmless(name: str, text: str | None) -> None:
    """Reject links, contact details and direction marks."""
    if text is not None and not is_harmless(text):
        raise TEXT_LEADS_AWAY(name=name)


def is_harmless(text: str) -> bool:
    return not has_direction(text) and not quoted_texts.contains_contact_details(text)


def require_no_secret(name: str, text: str | None) -> None:
    if text is not None and _asks_for_secret(text):
        rule = "must not ask for passwords, PINs, card numbers or one-time codes"
        raise TEXT_MISLEADING(name=name, rule=rule)


def is_fit_for_label(text: str) -> bool:
    return is_harmless(text) and not _asks_for_secret(text)


def _asks_for_secret(text: str) -> bool:
    return any(_SECRET.search(_HONEST.sub(" ", form)) for form in fold_words(text))


def forbid_own_name(settings: Settings, name: str, text: str | None) -> None:
    own_names = settings.own_names
    if text is not None and _find_words(_compile_phrases(_space_names(own_names)), text):
        rule = f"must not contain the name of this service: {' or '.join(own_names)}"
        raise TEXT_MISLEADING(name=name, rule=rule)


def find_suspicious_words(settings: Settings, texts: Iterable[str | None]) -> list[str] | None:
    """Return suspicious words, or ``None`` if there are none.

    Texts with suspicious words are accepted until a review, because many are harmless.
    """
    patterns = (_SUSPICIOUS, _compile_phrases(_space_names(settings.own_names)))
    words = [
        word for text in texts if text for each in patterns for word in _find_words(each, text)
    ]
    return list(dict.fromkeys(words)) or None


def _space_names(names: Iterable[str]) -> list[str]:
    """Insert optional spaces, because texts may hide a name by spaces."""
    return [" ".join(fold_words(each)[0].replace(" ", "")) for each in names]


def _find_words(pattern: re.Pattern[str], text: str) -> list[str]:
    forms = fold_words(text)
    return list(dict.fromkeys(match[0] for form in forms for match in pattern.finditer(form)))


def _compile_phrases(phrases: Iterable[str]) -> re.Pattern[str]:
    """Replace a star by any letters, and make each space optional."""
    parts = (re.escape(each).replace(r"\*", r"\w*").replace(r"\ ", " ?") for each in phrases)
    return re.compile(rf"\b(?:{'|'.join(parts)})\b")


_SECRET = _compile_phrases(_PHRASES["secrets"])
_HONEST = _compile_phrases(_PHRASES["honest"])
_SUSPICIOUS = _compile_phrases(_PHRASES["secrets"] + _PHRASES["suspicious"])
