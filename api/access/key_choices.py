"""The part of a form that asks which keys, passkeys and webhooks end with the old password."""

from collections.abc import Iterable

from core import ids
from models import ApiKey
from services.access import api_keys
from services.recovery import Kept
from storage.unit_of_work import UnitOfWork

# Each is a field of the form, and a form has at most a hundred.
MAX_KEYS_ASKED = 50
_TICKED = "end."
_SHOWN = "shown"
_TICKED_PASSKEY = "end_passkey."
_SHOWN_PASSKEYS = "shown_passkeys"
_TICKED_ENDPOINT = "end_endpoint."
_SHOWN_ENDPOINTS = "shown_endpoints"


def keys_to_ask(uow: UnitOfWork, user_id: int) -> tuple[list[ApiKey], int]:
    """The newest of the person's keys, and how many more there are."""
    found = api_keys.live_of(uow, user_id)
    return found[:MAX_KEYS_ASKED], len(found[MAX_KEYS_ASKED:])


def ticked_keys(form: dict[str, str]) -> frozenset[int]:
    return _ticked(form, _TICKED)


def ticked_passkeys(form: dict[str, str]) -> frozenset[int]:
    return _ticked(form, _TICKED_PASSKEY)


def ticked_endpoints(form: dict[str, str]) -> frozenset[int]:
    return _ticked(form, _TICKED_ENDPOINT)


def ended_boxes(form: dict[str, str]) -> dict[str, frozenset[int]]:
    """What the person ticked, by the names that the page has for it."""
    return {
        "ended_keys": ticked_keys(form),
        "ended_passkeys": ticked_passkeys(form),
        "ended_endpoints": ticked_endpoints(form),
    }


def unticked(form: dict[str, str]) -> Kept:
    """What the person saw and wants to keep; not what was made since."""
    return Kept(
        _numbers(form.get(_SHOWN, "").split(",")) - ticked_keys(form),
        _numbers(form.get(_SHOWN_PASSKEYS, "").split(",")) - ticked_passkeys(form),
        _numbers(form.get(_SHOWN_ENDPOINTS, "").split(",")) - ticked_endpoints(form),
    )


def _ticked(form: dict[str, str], prefix: str) -> frozenset[int]:
    return _numbers(name.removeprefix(prefix) for name in form if name.startswith(prefix))


def _numbers(words: Iterable[str]) -> frozenset[int]:
    return frozenset(
        int(word)
        for word in words
        if word.isascii() and word.isdigit() and len(word) < len(str(ids.MAX_ID))
    )
