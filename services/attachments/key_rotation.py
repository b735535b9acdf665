"""Encrypts all data keys with the current encryption key.

The rotation doesn't change the encrypted objects. Each batch of data keys is a transaction, so an
operator can stop the rotation at any time and run it again later. The service keeps running during
the rotation.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import InstrumentedAttribute

from models import Attachment, MemberExport, MemberImport, WebhookSecret
from storage.encryption import WrappedKey
from storage.resources import Resources

_MAX_BATCH_ROWS = 500
# The columns with the contexts of data keys. A data key can only be unwrapped with its context.
_CONTEXT_COLUMNS: tuple[InstrumentedAttribute[str], ...] = (
    Attachment.hash_id,
    MemberImport.object_prefix,
    MemberExport.object_prefix,
    WebhookSecret.context,
)


def rewrap_data_keys(resources: Resources) -> Iterator[int]:
    """Rewrap each data key that is under an older encryption key. Yield the size of each batch.

    Raises ``DecryptionFailed`` for a data key that no encryption key can unwrap.
    """
    return chain.from_iterable(_rewrap_column(resources, context) for context in _CONTEXT_COLUMNS)


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
                # Update the table without the ORM, because the ORM would set ``updated_at``.
                statement = update(kind.__table__).where(kind.id == row_id)
                statement = statement.values(wrapped_key=key.data, wrapped_by=key.wrapped_by)
                uow.session.execute(statement)
        if not rows:
            return
        last_id = rows[-1].id
        yield len(rows)
