"""The form that makes a key, and keys in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from api.console.typed_forms import wrong_field
from core import clock
from core.refusals.access import API_KEY_NAME
from core.scopes import KEY_EXPLANATIONS, Scope
from models import ApiKey

# Beside which field a refusal stands that names none.
PLACES = {API_KEY_NAME.code: "name"}
USUAL = {"lifetime": "90", "reach": "chosen"}
_LIFETIMES = {
    "30": ("30 days", timedelta(days=30)),
    "90": ("90 days", timedelta(days=90)),
    "365": ("A year", timedelta(days=365)),
    "": ("Until I end it", None),
}
_BOX = "scope."
# The operator alone gives it.
_OF_OPERATOR = "Get the rosters of lists that are sent by mail"


def scope_boxes() -> Sequence[tuple[str, str, str]]:
    """The fields of the form: the name, what the scope lets a key do, and the scope's own name."""
    return [(_BOX + scope, words, str(scope)) for scope, words in KEY_EXPLANATIONS.items()]


def lifetime_choices() -> Sequence[tuple[str, str, str]]:
    return [(value, label, "") for value, (label, _) in _LIFETIMES.items()]


def key_choice(form: Mapping[str, str]) -> dict[str, Any]:
    """What ``own_keys.make`` is told by the form; raises ``body.invalid``."""
    ticked = [scope for scope in KEY_EXPLANATIONS if _BOX + scope in form]
    reach, lifetime = form.get("reach"), form.get("lifetime", "")
    if reach not in {"all", "chosen"} or (reach == "chosen" and not ticked):
        raise wrong_field("reach", "tick what the key may do")
    if lifetime not in _LIFETIMES:
        raise wrong_field("lifetime", "must be one of those that the page offers")
    _, lasts = _LIFETIMES[lifetime]
    return {
        "name": form.get("name", ""),
        "scopes": None if reach == "all" else ticked,
        "expires_at": None if lasts is None else clock.now() + lasts,
    }


@dataclass(frozen=True)
class ShownKey:
    key: ApiKey

    @property
    def label(self) -> str:
        """As its owner and its last characters tell it apart."""
        return f"{self.key.name} (…{self.key.last_four})"

    @property
    def words(self) -> Sequence[str] | None:
        """What it may do; ``None``: all that its owner may."""
        scopes = self.key.scopes
        return None if scopes is None else scope_words(scopes)


def scope_words(scopes: Sequence[str]) -> Sequence[str]:
    return [KEY_EXPLANATIONS.get(Scope(scope), _OF_OPERATOR) for scope in scopes]
