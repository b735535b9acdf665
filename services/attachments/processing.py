"""Converts an uploaded image in a worker, and marks its attachment as ready."""

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
from storage.encryption import DecryptionFailed, seal, unseal
from storage.objects import ObjectMissing
from storage.resources import Resources

# The converted files of a worker that died or lost its lease are removed after this time.
_UNREFERENCED_OBJECT_LIFETIME = timedelta(hours=1)


def create_converter(_: Resources) -> ConverterProcess:
    return ConverterProcess()


def convert_upload(resources: Resources, lease: Lease, images: ConverterProcess) -> None:
    with resources.unit_of_work() as uow:
        attachment = uow.session.get(Attachment, lease.subject_id)
    if attachment is None:
        raise JobCancelled
    key = files.unwrap_data_key(resources, attachment)
    source = files.build_original_key(attachment.hash_id)
    try:
        original = unseal(resources.objects.get(source), key, source)
    except ObjectMissing:
        raise ATTACHMENT_ORIGINAL_MISSING() from None
    except DecryptionFailed as error:
        raise ATTACHMENT_DAMAGED() from error
    converted = _convert_image(images, original, attachment)
    lease.check_cancelled()
    media_files = files.list_converted_files(attachment, converted)
    with resources.unit_of_work() as uow:
        # Schedule the removal of the converted files before writing them, in case this attempt of
        # the job fails. Renew the lease before scheduling the removal, because an attempt that has
        # lost its lease must not schedule one.
        renew_lease(uow, lease)
        removals.forget_objects(
            uow, *files.list_file_keys(attachment), after=_UNREFERENCED_OBJECT_LIFETIME
        )
    for file, data in media_files:
        target = files.get_file_key(attachment, file)
        # Two attempts can safely write the same file at the same time, because they write the same
        # bytes.
        resources.objects.put(target, seal(data, key, target), file.mime_type)
    with resources.unit_of_work() as uow:
        complete_job(uow, lease, {"hash_id": attachment.hash_id})
        row = uow.session.get_one(Attachment, attachment.id)
        growth = sum(file.size for file, _ in media_files) - row.original_size
        if growth > 0:
            quotas.require_quota(uow, row.user_id, PlanQuota.STORAGE_MB, more=growth)
        _fill_row(row, converted, [file for file, _ in media_files])
        if not all(removals.keep_object(uow, key) for key in files.list_file_keys(row)):
            raise TransientError("An earlier copy of the file is still being deleted.")
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


def _fill_row(row: Attachment, converted: ConvertedImage, media_files: Sequence[MediaFile]) -> None:
    image, *renditions = media_files
    row.status = AttachmentStatus.READY
    row.mime_type = image.mime_type
    row.size = image.size
    row.checksum = image.checksum
    row.width = image.width
    row.height = image.height
    row.frames = converted.frames
    row.blurhash = converted.blurhash
    row.renditions = [asdict(rendition) for rendition in renditions]
