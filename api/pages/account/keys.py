"""The choice of the keys, passkeys and webhooks that end with the old password."""

from collections.abc import Iterable

from api.record_ids import parse_id
from models import ApiKey
from services.access import api_keys
from services.recovery import KeptAccess
from storage.unit_of_work import UnitOfWork

# Each key is a field of the form, and a form has at most 100 fields.
MAX_KEYS_ASKED = 50
# By the kind of things that end: the prefix of the checkboxes, and the field with all ids that the
# page showed.
_BOXES = {
    "ended_keys": ("end.", "shown"),
    "ended_passkeys": ("end_passkey.", "shown_passkeys"),
    "ended_endpoints": ("end_endpoint.", "shown_endpoints"),
}


def list_newest_keys(uow: UnitOfWork, user_id: int) -> tuple[list[ApiKey], int]:
    """Return the newest of the person's keys, and the number of older keys."""
    keys = api_keys.list_active_keys(uow, user_id)
    return keys[:MAX_KEYS_ASKED], len(keys[MAX_KEYS_ASKED:])


def read_ticked_boxes(form: dict[str, str]) -> dict[str, frozenset[int]]:
    """Return the ids of the keys, passkeys and endpoints that the person ticked."""
    return {
        kind: _parse_ids(field.removeprefix(prefix) for field in form if field.startswith(prefix))
        for kind, (prefix, _) in _BOXES.items()
    }


def read_unticked_boxes(form: dict[str, str]) -> KeptAccess:
    """Return the ids that the page showed and the person didn't tick.

    The result lacks keys, passkeys and endpoints that are newer than the page.
    """
    ticked = read_ticked_boxes(form)
    return KeptAccess(
        *(
            _parse_ids(form.get(field, "").split(",")) - ticked[kind]
            for kind, (_, field) in _BOXES.items()
        )
    )


def _parse_ids(words: Iterable[str]) -> frozenset[int]:
    return frozenset(filter(None, map(parse_id, words)))
