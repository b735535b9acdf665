from collections.abc import Iterator

from sqlalchemy import select, update

from models import Attachment
from services.media.attachments.files import wrapped_key
from storage.resources import Resources

_MAX_BATCH_ROWS = 500


def rotate(resources: Resources) -> Iterator[int]:
    """Rewrap each data key that an older encryption key wraps; yields the number of each batch.

    Objects stay as they are. Each batch is a transaction, so an operator may stop the rotation and
    run it again, while the service runs. Raises ``Tampered`` for a data key that no key of the
    keyring unwraps.
    """
    after = 0
    while True:
        with resources.unit_of_work() as uow:
            query = select(Attachment).where(
                Attachment.id > after,
                Attachment.encrypted,
                Attachment.wrapped_by != resources.key_wrapper.current,
            )
            batch = query.order_by(Attachment.id).limit(_MAX_BATCH_ROWS).with_for_update()
            stale = uow.session.scalars(batch).all()
            for attachment in stale:
                wrapped = wrapped_key(attachment)
                assert wrapped is not None
                rewrapped = resources.key_wrapper.rewrap(wrapped, attachment.hash_id)
                # Not by the ORM, which would set updated_at: the attachment is the same.
                uow.session.execute(
                    update(Attachment.__table__)  # type: ignore[arg-type]
                    .where(Attachment.id == attachment.id)
                    .values(wrapped_key=rewrapped.data, wrapped_by=rewrapped.wrapped_by)
                )
        if not stale:
            return
        after = stale[-1].id
        yield len(stale)
