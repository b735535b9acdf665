"""Reads from the new-password form which credentials the user wants to revoke."""

from collections.abc import Iterable

from api.record_ids import parse_id
from core.ids import AccountId
from models import ApiKey
from services.access import api_keys
from services.recovery import KeptAccess
from storage.unit_of_work import UnitOfWork

# The maximum number of API keys that the password page shows. The page has a checkbox for each API
# key, and a form may have at most 100 fields.
MAX_KEYS_ON_PAGE = 30
# Maps each kind of credential to the name prefix of its checkboxes, and to the form field that
# lists all ids on the page.
_BOXES = {
    "ended_keys": ("end.", "shown"),
    "ended_passkeys": ("end_passkey.", "shown_passkeys"),
    "ended_endpoints": ("end_endpoint.", "shown_endpoints"),
    "ended_senders": ("end_sender.", "shown_senders"),
}


def list_newest_keys(uow: UnitOfWork, account_id: AccountId) -> tuple[list[ApiKey], int]:
    keys = api_keys.list_active_keys(uow, account_id)
    return keys[:MAX_KEYS_ON_PAGE], len(keys[MAX_KEYS_ON_PAGE:])


def read_ticked_boxes(form: dict[str, str]) -> dict[str, frozenset[int]]:
    return {
        kind: _parse_ids(field.removeprefix(prefix) for field in form if field.startswith(prefix))
        for kind, (prefix, _) in _BOXES.items()
    }


def read_unticked_boxes(form: dict[str, str]) -> KeptAccess:
    """Return the ids of the records that a password reset must not remove. Records that are newer
    than the page are removed too, because the page has no checkboxes for them.
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
