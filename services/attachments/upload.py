"""Accepts an uploaded image, and enqueues a job for its conversion."""

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePosixPath, PureWindowsPath

from core import ids
from core.errors import DomainError
from core.errors import media as errors
from core.ids import AccountId
from core.permissions import Permission
from core.queues import Queue
from core.scopes import Scope
from core.settings.notations import PlanQuota
from core.upload_limits import MAX_IMAGE_BYTES
from models import Attachment, AttachmentStatus, Job
from services import removals
from services.access import quotas
from services.attachments.files import build_original_key
from services.attachments.images.outcome import ALLOWED_EXTENSIONS, ImageType, sniff_image_type
from services.feed.catalogue import FeedEventType, announce_event
from services.jobs import idempotency
from services.jobs.idempotency import AcceptedJob, IdempotencyKey
from services.jobs.kinds import (
    COMPUTING_DEADLINE_SECONDS,
    JobKind,
    JobPermissions,
    register_kind,
)
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from services.jobs.records import RETRY_INPUT_RETENTION, describe_error, is_retry_sensible
from storage.encryption import WrappedKey, seal
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_IMAGE_FILENAME_CHARACTERS = 255


@dataclass(frozen=True)
class Upload:
    filename: str
    data: bytes
    encrypted: bool
    with_renditions: bool = False


def _fail_with_job(uow: UnitOfWork, job: Job) -> None:
    row = uow.session.get(Attachment, job.subject_id)
    if row is None:
        return
    error = describe_error(job)
    row.status = AttachmentStatus.FAILED
    row.error = error
    announce_event(
        uow,
        row.user_id,
        FeedEventType.ATTACHMENT_FAILED,
        row.id,
        hash_id=row.hash_id,
        code=None if error is None else str(error["code"]),
    )
    retention = RETRY_INPUT_RETENTION if is_retry_sensible(job) else timedelta(0)
    removals.forget_objects(uow, build_original_key(row.hash_id), after=retention)


def _restart_processing(uow: UnitOfWork, job: Job) -> bool:
    """Reset the status for another conversion, or return false if the original is missing."""
    attachment = uow.session.get(Attachment, job.subject_id)
    if attachment is None or not removals.keep_object(uow, build_original_key(attachment.hash_id)):
        return False
    attachment.status = AttachmentStatus.PROCESSING
    attachment.error = None
    return True


def _process(resources: Resources, lease: Lease) -> None:
    # Import the image conversion only when a job runs, because the API must not load image
    # decoders.
    from services.attachments import processing

    processing.convert_upload(resources, lease, resources.shared(processing.create_converter))


PROCESS_ATTACHMENT = register_kind(
    JobKind(
        name="attachment.process",
        run=_process,
        queue=Queue.MEDIA,
        scope=Scope.ATTACHMENT,
        permissions=JobPermissions(Permission.IMAGES, Permission.IMAGES),
        retryable=True,
        retryable_codes=frozenset({errors.IMAGE_TIMEOUT.code}),
        on_abandoned=_fail_with_job,
        on_restarted=_restart_processing,
        deadline_seconds=COMPUTING_DEADLINE_SECONDS,
    )
)


def accept_upload(
    resources: Resources, account_id: AccountId, upload: Upload, *, key: IdempotencyKey | None
) -> AcceptedJob:
    image_type = validate_upload(upload)
    earlier = idempotency.find_accepted(resources, key)
    if earlier is not None:
        return earlier
    hash_id = ids.random_hash_id()
    data_key: bytes | None = None
    wrapped: WrappedKey | None = None
    if upload.encrypted:
        data_key, wrapped = resources.key_wrapper.create_key(hash_id)
    # Store the uploaded object before its row, so that no row refers to a missing object. If the
    # process crashes before it writes the row, ``sweep_uploads`` removes the object.
    object_key = build_original_key(hash_id)
    sealed = seal(upload.data, data_key, object_key)
    resources.objects.put(object_key, sealed, "application/octet-stream")

    def store_row(uow: UnitOfWork) -> Job:
        quotas.require_quota(uow, account_id, PlanQuota.STORAGE_MB, more=len(upload.data))
        attachment = _create_row(account_id, upload, hash_id, image_type, wrapped)
        uow.session.add(attachment)
        uow.session.flush()
        return enqueue_job(uow, PROCESS_ATTACHMENT, account_id=account_id, subject_id=attachment.id)

    try:
        accepted = idempotency.accept_once(resources, key, store_row)
    except DomainError:
        _schedule_removal(resources, object_key)
        raise
    # Keep the uploaded object after an unexpected error, because its row may have been committed.
    # If the database has no row for the object, ``sweep_uploads`` removes the object later.
    if accepted.replayed:
        _schedule_removal(resources, object_key)
    return accepted


def _create_row(
    account_id: AccountId,
    upload: Upload,
    hash_id: str,
    image_type: ImageType,
    wrapped: WrappedKey | None,
) -> Attachment:
    stored_type = ImageType.PNG if image_type is ImageType.ICO else ImageType.WEBP
    return Attachment(
        user_id=account_id,
        hash_id=hash_id,
        status=AttachmentStatus.PROCESSING,
        encrypted=upload.encrypted,
        wrapped_key=wrapped.data if wrapped else None,
        wrapped_by=wrapped.wrapped_by if wrapped else None,
        mime_type=stored_type.mime_type,
        filename=f"{hash_id}.{stored_type}",
        original_filename=upload.filename,
        original_mime_type=image_type.mime_type,
        original_size=len(upload.data),
        original_checksum=hashlib.sha256(upload.data).hexdigest(),
        renditions=[] if upload.with_renditions else None,
    )


def _schedule_removal(resources: Resources, object_key: str) -> None:
    with resources.unit_of_work() as uow:
        removals.forget_objects(uow, object_key)


def validate_upload(upload: Upload) -> ImageType:
    if not upload.data:
        raise errors.ATTACHMENT_EMPTY()
    if len(upload.data) > MAX_IMAGE_BYTES:
        raise errors.ATTACHMENT_TOO_LARGE()
    if PurePosixPath(upload.filename).suffix.lower().removeprefix(".") not in ALLOWED_EXTENSIONS:
        allowed = ", .".join(sorted(ALLOWED_EXTENSIONS))
        raise errors.ATTACHMENT_UNSUPPORTED_NAME(extensions=allowed)
    image_type = sniff_image_type(upload.data)
    if image_type is None:
        raise errors.ATTACHMENT_UNSUPPORTED_TYPE()
    return image_type


def clean_filename(name: str) -> str:
    base = PureWindowsPath(name).name
    printable = "".join(filter(str.isprintable, base))
    if not printable:
        raise errors.ATTACHMENT_FILENAME_MISSING()
    return printable[-MAX_IMAGE_FILENAME_CHARACTERS:]
