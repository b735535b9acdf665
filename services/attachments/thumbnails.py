"""Creates the missing thumbnails of images that release 1.0.0 converted.

The console's page of images enqueues a job for each image without a thumbnail. Images that nobody
looks at cause no work.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import select, update

from core.errors import DomainError, Kind, TransientError
from core.errors.media import ATTACHMENT_DAMAGED, ATTACHMENT_ORIGINAL_MISSING
from core.ids import AccountId
from core.queues import Queue
from core.scopes import Scope
from models import Attachment, AttachmentStatus, Job
from services import removals
from services.attachments import files
from services.attachments.images.outcome import UnreadableImage
from services.jobs import records
from services.jobs.kinds import COMPUTING_DEADLINE_SECONDS, JobKind, register_kind
from services.jobs.lease import JobCancelled, Lease, renew_lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job
from storage.encryption import DecryptionFailed, seal, unseal
from storage.objects import ObjectMissing
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from services.attachments.isolation.converter import ConverterProcess

# If a worker dies or loses its lease, the worker's thumbnail is removed after this time.
_UNREFERENCED_OBJECT_LIFETIME = timedelta(hours=1)


def _run(resources: Resources, lease: Lease) -> None:
    # Import the image conversion only when a job runs, because the API must not load image
    # decoders.
    from services.attachments import processing

    add_thumbnail(resources, lease, resources.shared(processing.create_converter))


ADD_THUMBNAIL = register_kind(
    JobKind(
        name="attachment.thumbnail",
        run=_run,
        queue=Queue.MEDIA,
        scope=Scope.ATTACHMENT,
        permissions=None,
        retryable=False,
        deadline_seconds=COMPUTING_DEADLINE_SECONDS,
    )
)


def enqueue_missing_thumbnails(
    uow: UnitOfWork, account_id: AccountId, attachments: Sequence[Attachment]
) -> None:
    """Enqueue jobs for ready images without a thumbnail and without an unfinished job.

    The owner's list of jobs doesn't contain these jobs, because the owner didn't start them.
    """
    missing_ids = [
        each.id
        for each in attachments
        if each.status == AttachmentStatus.READY and files.find_thumbnail(each) is None
    ]
    for attachment_id in missing_ids:
        is_enqueued = records.is_working_on(attachment_id, [ADD_THUMBNAIL], account_id)
        if uow.session.scalar(select(Job.id).where(is_enqueued).limit(1)) is None:
            enqueue_job(
                uow,
                ADD_THUMBNAIL,
                account_id=None,
                on_behalf_of=account_id,
                subject_id=attachment_id,
            )


def add_thumbnail(resources: Resources, lease: Lease, images: "ConverterProcess") -> None:
    with resources.unit_of_work() as uow:
        attachment = uow.session.get(Attachment, lease.subject_id)
    if attachment is None:
        raise JobCancelled
    key = files.unwrap_data_key(resources, attachment)
    source = files.build_media_key(attachment)
    try:
        stored = unseal(resources.objects.get(source), key, source)
        thumbnail = images.create_thumbnail(stored)
    except ObjectMissing:
        raise ATTACHMENT_ORIGINAL_MISSING() from None
    except DecryptionFailed as error:
        raise ATTACHMENT_DAMAGED() from error
    except UnreadableImage as error:
        raise DomainError(Kind.INVALID, error.code, error.message) from error
    file = files.describe_rendition(attachment, thumbnail)
    target = files.get_file_key(attachment, file)
    with resources.unit_of_work() as uow:
        # Schedule the removal of the thumbnail before writing it, in case this attempt of the job
        # fails or the image is deleted.
        renew_lease(uow, lease)
        removals.forget_objects(uow, target, after=_UNREFERENCED_OBJECT_LIFETIME)
    resources.objects.put(target, seal(thumbnail.data, key, target), file.mime_type)
    with resources.unit_of_work() as uow:
        complete_job(uow, lease, {"hash_id": attachment.hash_id})
        row = uow.session.scalar(
            select(Attachment).where(Attachment.id == attachment.id).with_for_update()
        )
        if row is None or row.status != AttachmentStatus.READY:
            raise JobCancelled
        if files.find_thumbnail(row) is None:
            statement = update(Attachment).where(Attachment.id == row.id)
            renditions = [asdict(file), *(row.renditions or ())]
            # The owner changed nothing, so ``updated_at`` must stay the same.
            values = {"renditions": renditions, "updated_at": Attachment.updated_at}
            uow.session.execute(statement.values(values))
        if not removals.keep_object(uow, target):
            raise TransientError("An earlier copy of the file is still being deleted.")
