from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta

from core.errors import DomainError, Kind, TransientError
from core.errors.media import ATTACHMENT_DAMAGED, ATTACHMENT_ORIGINAL_MISSING
from core.settings.notations import PlanQuota
from core.telemetry import spans
from models import Attachment, AttachmentStatus
from services import removals
from services.access import quotas
from services.attachments import files
from services.attachments.files import MediaFile
from services.attachments.images.outcome import ConvertedImage, UnreadableImage
from services.attachments.isolation.converter import ConverterProcess
from services.feed.catalogue import FeedEventType, announce
from services.jobs.lease import JobCancelled, Lease, renew_lease
from services.jobs.transitions import complete_job
from storage.encryption import Tampered, seal, unseal
from storage.objects import ObjectMissing
from storage.resources import Resources

# An object that no attachment names by then was written by a worker that lost its lease, or died.
_UNNAMED_FOR = timedelta(hours=1)


def converter(_: Resources) -> ConverterProcess:
    return ConverterProcess()


def process(resources: Resources, lease: Lease, images: ConverterProcess) -> None:
    """Convert one upload and make it ready with its renditions, all or nothing.

    Raises a ``DomainError`` with the reason, also when the image grew beyond the plan's room.
    """
    with resources.unit_of_work() as uow:
        attachment = uow.session.get(Attachment, lease.subject_id)
    if attachment is None:
        raise JobCancelled
    key = files.data_key(resources, attachment)
    source = files.original_key(attachment)
    try:
        original = unseal(resources.objects.get(source), key, source)
    except ObjectMissing:
        raise ATTACHMENT_ORIGINAL_MISSING() from None
    except Tampered as error:
        raise ATTACHMENT_DAMAGED() from error
    converted = _converted(images, original, attachment)
    lease.check_cancelled()
    made = files.converted_files(attachment, converted)
    with resources.unit_of_work() as uow:
        # While this worker holds the lease, so that its row is older than its successor's commit.
        renew_lease(uow, lease)
        removals.forget(uow, *files.keys_of_files(attachment), after=_UNNAMED_FOR)
    for file, data in made:
        target = files.key_of_file(attachment, file)
        # Two attempts may write this object at once; both write the same bytes.
        resources.objects.put(target, seal(data, key, target), file.mime_type)
    with resources.unit_of_work() as uow:
        complete_job(uow, lease, {"hash_id": attachment.hash_id})
        row = uow.session.get_one(Attachment, attachment.id)
        growth = sum(file.size for file, _ in made) - row.original_size
        if growth > 0:
            quotas.require(uow, row.user_id, PlanQuota.STORAGE_MB, more=growth)
        _describe(row, converted, [file for file, _ in made])
        if not all(removals.keep(uow, key) for key in files.keys_of_files(row)):
            raise TransientError("The storage still removes an earlier copy of the file.")
        removals.forget(uow, source)
        announce(uow, row.user_id, FeedEventType.ATTACHMENT_READY, row.id, hash_id=row.hash_id)


def _converted(images: ConverterProcess, original: bytes, attachment: Attachment) -> ConvertedImage:
    try:
        with spans.span("convert image"):
            return images.convert(original, with_renditions=attachment.renditions is not None)
    except UnreadableImage as error:
        raise DomainError(Kind.INVALID, error.code, error.message) from error


def _describe(row: Attachment, converted: ConvertedImage, made: Sequence[MediaFile]) -> None:
    whole, *renditions = made
    row.status, row.mime_type = AttachmentStatus.READY, whole.mime_type
    row.size, row.checksum = whole.size, whole.checksum
    row.width, row.height = whole.width, whole.height
    row.frames, row.blurhash = converted.frames, converted.blurhash
    if row.renditions is not None:
        row.renditions = [asdict(each) for each in renditions]
