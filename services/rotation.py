"""The rotation of the keys that wrap the data keys of encrypted files."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import InstrumentedAttribute

from models import Attachment, MemberExport, MemberImport, WebhookSecret
from storage.encryption import WrappedKey
from storage.resources import Resources

_MAX_BATCH_ROWS = 500
# What each data key was wrapped for: only that opens it.
_CONTEXTS: tuple[InstrumentedAttribute[str], ...] = (
    Attachment.hash_id,
    MemberImport.object_prefix,
    MemberExport.object_prefix,
    WebhookSecret.context,
)


def rotate(resources: Resources) -> Iterator[int]:
    """Rewrap each data key that an older encryption key wraps; yields the number of each batch.

    Objects stay as they are. Each batch is a transaction, so an operator may stop the rotation and
    run it again, while the service runs. Raises ``Tampered`` for a data key that no key of the
    keyring unwraps.
    """
    for context in _CONTEXTS:
        yield from _rotate(resources, context)


def _rotate(resources: Resources, context: InstrumentedAttribute[str]) -> Iterator[int]:
    kind: Any = context.class_
    wrapper, after = resources.key_wrapper, 0
    while True:
        with resources.unit_of_work() as uow:
            query = (
                select(kind.id, context, kind.wrapped_by, kind.wrapped_key)
                .where(kind.id > after, kind.wrapped_by != wrapper.current)
                .order_by(kind.id)
                .limit(_MAX_BATCH_ROWS)
                .with_for_update()
            )
            stale = uow.session.execute(query).all()
            for row_id, name, wrapped_by, wrapped_key in stale:
                rewrapped = wrapper.rewrap(WrappedKey(wrapped_by, wrapped_key), name)
                # Not by the ORM, which would set updated_at: the file is the same.
                uow.session.execute(
                    update(kind.__table__)
                    .where(kind.id == row_id)
                    .values(wrapped_key=rewrapped.data, wrapped_by=rewrapped.wrapped_by)
                )
        if not stale:
            return
        after = stale[-1].id
        yield len(stale)
