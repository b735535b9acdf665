"""Converts an uploaded image in a worker, and makes its attachment ready."""

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
from services.feed.catalogue import FeedEventType, announce_event
from services.jobs.lease import JobCancelled, Lease, renew_lease
from services.jobs.transitions import complete_job
from storage.encryption import Tampered, seal, unseal
from storage.objects import ObjectMissing
from storage.resources import Resources

# An object that no row names after this time was written by a worker that lost its lease or died.
_UNNAMED_FOR = timedelta(hours=1)


def create_converter(_: Resources) -> ConverterProcess:
    return ConverterProcess()


def convert_upload(resources: Resources, lease: Lease, images: ConverterProcess) -> None:
    """Convert one upload with its renditions, and make it ready in one transaction.

    Raises a ``DomainError`` with the reason, for example if the quota has no room for the image.
    """
    with resources.unit_of_work() as uow:
        attachment = uow.session.get(Attachment, lease.subject_id)
    if attachment is None:
        raise JobCancelled
    key = files.data_key(resources, attachment)
    source = files.original_key(attachment.hash_id)
    try:
        original = unseal(resources.objects.get(source), key, source)
    except ObjectMissing:
        raise ATTACHMENT_ORIGINAL_MISSING() from None
    except Tampered as error:
        raise ATTACHMENT_DAMAGED() from error
    converted = _convert_image(images, original, attachment)
    lease.check_cancelled()
    converted_files = files.converted_files(attachment, converted)
    with resources.unit_of_work() as uow:
        # Renew the lease first: this removal is then older than the commit of any later worker.
        renew_lease(uow, lease)
        removals.forget_objects(uow, *files.keys_of_files(attachment), after=_UNNAMED_FOR)
    for file, data in converted_files:
        target = files.key_of_file(attachment, file)
        # Two attempts may write this object at the same time. Both write the same bytes.
        resources.objects.put(target, seal(data, key, target), file.mime_type)
    with resources.unit_of_work() as uow:
        complete_job(uow, lease, {"hash_id": attachment.hash_id})
        row = uow.session.get_one(Attachment, attachment.id)
        growth = sum(file.size for file, _ in converted_files) - row.original_size
        if growth > 0:
            quotas.require_quota(uow, row.user_id, PlanQuota.STORAGE_MB, more=growth)
        _fill_row(row, converted, [file for file, _ in converted_files])
        if not all(removals.keep_object(uow, key) for key in files.keys_of_files(row)):
            raise TransientError("The storage still removes an earlier copy of the file.")
        removals.forget_objects(uow, source)
        announce_event(
            uow, row.user_id, FeedEventType.ATTACHMENT_READY, row.id, hash_id=row.hash_id
        )


def _convert_image(
    images: ConverterProcess, original: bytes, attachment: Attachment
) -> ConvertedImage:
    try:
        with spans.step_span("convert image"):
            return images.convert(original, with_renditions=attachment.renditions is not None)
    except UnreadableImage as error:
        raise DomainError(Kind.INVALID, error.code, error.message) from error


def _fill_row(row: Attachment, converted: ConvertedImage, media: Sequence[MediaFile]) -> None:
    image, *renditions = media
    row.status = AttachmentStatus.READY
    row.mime_type = image.mime_type
    row.size = image.size
    row.checksum = image.checksum
    row.width = image.width
    row.height = image.height
    row.frames = converted.frames
    row.blurhash = converted.blurhash
    if row.renditions is not None:
        row.renditions = [asdict(each) for each in renditions]
