"""The part of a form that asks which API keys end together with the old password."""

from collections.abc import Iterable

from core import ids
from models import ApiKey
from services.access import api_keys
from storage.unit_of_work import UnitOfWork

# Each is a field of the form, and a form has at most a hundred.
MAX_KEYS_ASKED = 50
_TICKED = "end."
_SHOWN = "shown"


def keys_to_ask(uow: UnitOfWork, user_id: int) -> tuple[list[ApiKey], int]:
    """The newest of the person's keys, and how many more there are."""
    found = api_keys.live_of(uow, user_id)
    return found[:MAX_KEYS_ASKED], len(found[MAX_KEYS_ASKED:])


def ticked_keys(form: dict[str, str]) -> frozenset[int]:
    return _numbers(name.removeprefix(_TICKED) for name in form if name.startswith(_TICKED))


def unticked_keys(form: dict[str, str]) -> frozenset[int]:
    """The keys that the person saw and wants to keep; not those that were made since."""
    return _numbers(form.get(_SHOWN, "").split(",")) - ticked_keys(form)


def _numbers(words: Iterable[str]) -> frozenset[int]:
    return frozenset(
        int(word)
        for word in words
        if word.isascii() and word.isdigit() and len(word) < len(str(ids.MAX_ID))
    )
