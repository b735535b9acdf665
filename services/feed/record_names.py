"""Looks up the names of records that events refer to, such as API keys and webhooks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select

from core.ids import AccountId
from models import (
    ApiKey,
    Attachment,
    MailingList,
    MemberImport,
    OAuthClient,
    OAuthGrant,
    Sender,
    WebhookEndpoint,
)
from storage.unit_of_work import UnitOfWork

# Maps field names such as ``key_id`` to the queries for the ids and names of the records to which
# these fields refer.
_NAMES_BY_FIELD: Mapping[str, Any] = {
    "key_id": select(ApiKey.id, ApiKey.name),
    "grant_id": select(OAuthGrant.id, OAuthClient.name).join(
        OAuthClient, OAuthClient.client_id == OAuthGrant.client_id
    ),
    "endpoint_id": select(WebhookEndpoint.id, WebhookEndpoint.url),
    "sender_id": select(Sender.id, Sender.name),
    "list_id": select(MailingList.id, MailingList.title),
    "import_id": select(MemberImport.id, MemberImport.filename),
    "hash_id": select(Attachment.hash_id, Attachment.original_filename),
}
# Maps each field in ``_NAMES_BY_FIELD`` to the column with the ids of the records' owners.
_OWNERS_BY_FIELD = {
    "key_id": ApiKey.user_id,
    "grant_id": OAuthGrant.user_id,
    "endpoint_id": WebhookEndpoint.user_id,
    "sender_id": Sender.user_id,
    "list_id": MailingList.user_id,
    "import_id": MemberImport.user_id,
    "hash_id": Attachment.user_id,
}

# The name of a field of an event, such as ``key_id``, and the id that the field contains.
RecordId = tuple[str, object]


def find_names(
    uow: UnitOfWork, account_id: AccountId, record_ids: Iterable[RecordId]
) -> dict[RecordId, str]:
    """Map pairs of a field name, such as ``key_id``, and an id to the names of the user's records.

    Unknown fields, records of other users and records without a name are omitted.
    """
    ids_by_field: dict[str, set[object]] = defaultdict(set)
    for field, record_id in record_ids:
        if field in _NAMES_BY_FIELD and isinstance(record_id, int | str):
            ids_by_field[field].add(record_id)
    names: dict[RecordId, str] = {}
    for field, record_ids_of_field in ids_by_field.items():
        query = _NAMES_BY_FIELD[field]
        id_column = next(iter(query.selected_columns))
        query = query.where(
            _OWNERS_BY_FIELD[field] == account_id,
            id_column.in_(sorted(record_ids_of_field, key=str)),
        )
        names |= {
            (field, record_id): name for record_id, name in uow.session.execute(query) if name
        }
    return names
