"""Re-encrypts all data keys after an operator has added a new encryption key.

The objects stay unchanged. An operator can stop the rotation at any time and run it again later,
because each batch has its own transaction.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import InstrumentedAttribute

from models import (
    Attachment,
    MemberExport,
    MemberImport,
    SenderBody,
    SenderSecret,
    WebhookSecret,
)
from storage.encryption import WrappedKey
from storage.resources import Resources

_MAX_BATCH_ROWS = 500
# The columns that contain the encryption context of each data key. A data key must be decrypted
# with the same encryption context with which it was encrypted.
_CONTEXT_COLUMNS: tuple[InstrumentedAttribute[str], ...] = (
    Attachment.hash_id,
    MemberImport.object_prefix,
    MemberExport.object_prefix,
    WebhookSecret.context,
    SenderSecret.context,
    SenderBody.context,
)


def rewrap_data_keys(resources: Resources) -> Iterator[int]:
    """Re-encrypt all data keys that are encrypted with an old key. Yield their number per batch."""
    return chain.from_iterable(_rewrap_column(resources, context) for context in _CONTEXT_COLUMNS)


def count_uses(resources: Resources) -> Counter[str]:
    uses: Counter[str] = Counter()
    with resources.unit_of_work() as uow:
        for context in _CONTEXT_COLUMNS:
            kind: Any = context.class_
            query = select(kind.wrapped_by, func.count()).where(kind.wrapped_by.is_not(None))
            uses.update(dict(uow.session.execute(query.group_by(kind.wrapped_by)).all()))
    return uses


def _rewrap_column(resources: Resources, context: InstrumentedAttribute[str]) -> Iterator[int]:
    kind: Any = context.class_
    wrapper = resources.key_wrapper
    last_id = 0
    while True:
        with resources.unit_of_work() as uow:
            query = select(kind.id, context, kind.wrapped_by, kind.wrapped_key)
            query = query.where(kind.id > last_id, kind.wrapped_by != wrapper.current)
            query = query.order_by(kind.id).limit(_MAX_BATCH_ROWS).with_for_update()
            rows = uow.session.execute(query).all()
            for row_id, name, wrapped_by, wrapped_key in rows:
                key = wrapper.rewrap(WrappedKey(wrapped_by, wrapped_key), name)
                # Bypass the ORM, because it would change ``updated_at``.
                statement = update(kind.__table__).where(kind.id == row_id)
                statement = statement.values(wrapped_key=key.data, wrapped_by=key.wrapped_by)
                uow.session.execute(statement)
        if not rows:
            return
        last_id = rows[-1].id
        yield len(rows)
