"""The part of a form that asks which keys, passkeys and webhooks end with the old password."""

from collections.abc import Iterable

from api.record_ids import parse_id
from models import ApiKey
from services.access import api_keys
from services.recovery import KeptAccess
from storage.unit_of_work import UnitOfWork

# Each is a field of the form, and a form has at most a hundred.
MAX_KEYS_ASKED = 50
# The names that the page has for what is ticked: the prefix of the boxes, and the field that lists
# all that the person saw.
_BOXES = {
    "ended_keys": ("end.", "shown"),
    "ended_passkeys": ("end_passkey.", "shown_passkeys"),
    "ended_endpoints": ("end_endpoint.", "shown_endpoints"),
}


def keys_to_ask(uow: UnitOfWork, user_id: int) -> tuple[list[ApiKey], int]:
    """Return the newest of the person's keys, and the number of the others."""
    found = api_keys.live_of(uow, user_id)
    return found[:MAX_KEYS_ASKED], len(found[MAX_KEYS_ASKED:])


def ended_boxes(form: dict[str, str]) -> dict[str, frozenset[int]]:
    """Return the ids of the keys, passkeys and endpoints that the person ticked."""
    return {
        name: _numbers(field.removeprefix(prefix) for field in form if field.startswith(prefix))
        for name, (prefix, _) in _BOXES.items()
    }


def unticked(form: dict[str, str]) -> KeptAccess:
    """Return those that the person saw and wants to keep; newer ones are not among them."""
    ended = ended_boxes(form)
    return KeptAccess(
        *(
            _numbers(form.get(shown, "").split(",")) - ended[name]
            for name, (_, shown) in _BOXES.items()
        )
    )


def _numbers(words: Iterable[str]) -> frozenset[int]:
    return frozenset(filter(None, map(parse_id, words)))
