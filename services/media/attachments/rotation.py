from collections.abc import Iterator

from sqlalchemy import select, update

from models import Attachment
from storage.encryption import WrappedKey
from storage.resources import Resources

_BATCH = 500


def rotate(resources: Resources) -> Iterator[int]:
    """Rewrap every data key that an older encryption key wraps; yields how many, batch by batch.

    Objects are not touched. Each batch is a transaction of its own, so it may be stopped and run
    again, beside the running service. Raises ``Tampered`` for a key that none of the keyring opens.
    """
    after = 0
    while True:
        with resources.unit_of_work() as uow:
            stale = list(
                uow.session.scalars(
                    select(Attachment)
                    .where(
                        Attachment.id > after,
                        Attachment.encrypted,
                        Attachment.wrapped_by != resources.key_wrapper.current,
                    )
                    .order_by(Attachment.id)
                    .limit(_BATCH)
                    .with_for_update()
                )
            )
            for attachment in stale:
                rewrapped = _rewrapped(resources, attachment)
                # Beside the ORM, so that updated_at stays: the attachment is the same.
                uow.session.execute(
                    update(Attachment.__table__)  # type: ignore[arg-type]
                    .where(Attachment.id == attachment.id)
                    .values(wrapped_key=rewrapped.data, wrapped_by=rewrapped.wrapped_by)
                )
        if not stale:
            return
        after = stale[-1].id
        yield len(stale)


def _rewrapped(resources: Resources, attachment: Attachment) -> WrappedKey:
    assert attachment.wrapped_key is not None
    assert attachment.wrapped_by is not None
    wrapped = WrappedKey(attachment.wrapped_by, attachment.wrapped_key)
    return resources.key_wrapper.rewrap(wrapped, attachment.hash_id)
