import hashlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePosixPath, PureWindowsPath

from core import ids
from core.errors import DomainError
from core.errors import media as errors
from core.queues import Queue
from core.scopes import Scope
from core.settings.notations import PlanQuota
from core.upload_limits import MAX_IMAGE_BYTES
from models import Attachment, AttachmentStatus, Job
from services import removals
from services.access.caller import Caller
from services.attachments.files import original_key
from services.attachments.images.outcome import ALLOWED_EXTENSIONS, ImageType, sniff
from services.feed.catalogue import FeedEventType, announce
from services.jobs import idempotency
from services.jobs.idempotency import AcceptedJob, EqualRequestCommitted, IdempotencyKey
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import Lease
from services.jobs.records import KEPT_FOR_RETRY, describe_error, is_retry_sensible
from storage.encryption import seal
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
    """Fail the attachment of a job that did not succeed, with the job's error."""
    row = uow.session.get(Attachment, job.subject_id)
    if row is None:
        return
    error, told = describe_error(job), FeedEventType.ATTACHMENT_FAILED
    row.status, row.error = AttachmentStatus.FAILED, error
    code = None if error is None else str(error["code"])
    announce(uow, row.user_id, told, row.id, hash_id=row.hash_id, code=code)
    kept_for = KEPT_FOR_RETRY if is_retry_sensible(job) else timedelta(0)
    removals.forget(uow, original_key(row), after=kept_for)


def _process_again(uow: UnitOfWork, job: Job) -> bool:
    attachment = uow.session.get(Attachment, job.subject_id)
    if attachment is None or not removals.keep(uow, original_key(attachment)):
        return False
    attachment.status, attachment.error = AttachmentStatus.PROCESSING, None
    return True


def _process(resources: Resources, lease: Lease) -> None:
    # Imported here: the API must not load what decodes images.
    from services.attachments import processing

    processing.process(resources, lease, resources.shared(processing.converter))


PROCESS_ATTACHMENT = register_kind(
    JobKind(
        name="attachment.process",
        run=_process,
        queue=Queue.MEDIA,
        scope=Scope.ATTACHMENT,
        retryable=True,
        on_abandoned=_fail_with_job,
        on_restarted=_process_again,
    )
)


def accept(
    resources: Resources, caller: Caller, upload: Upload, *, key: IdempotencyKey | None
) -> AcceptedJob:
    """Refuse an upload, or store it and then queue its conversion.

    Raises ``attachment.empty``, ``attachment.too_large``, ``attachment.unsupported_type``,
    ``quota.exceeded``, and what ``services.jobs.idempotency`` raises.
    """
    image_type = check(upload)

    def store() -> Job:
        hash_id = ids.random_hash_id()
        stored_as = ImageType.PNG if image_type is ImageType.ICO else ImageType.WEBP
        wrapper = resources.key_wrapper
        data_key, wrapped = wrapper.new_key(hash_id) if upload.encrypted else (None, None)
        attachment = Attachment(
            user_id=caller.user_id,
            hash_id=hash_id,
            status=AttachmentStatus.PROCESSING,
            encrypted=upload.encrypted,
            wrapped_key=wrapped.data if wrapped else None,
            wrapped_by=wrapped.wrapped_by if wrapped else None,
            mime_type=stored_as.mime_type,
            filename=f"{hash_id}.{stored_as}",
            original_filename=upload.filename,
            original_mime_type=image_type.mime_type,
            original_size=len(upload.data),
            original_checksum=hashlib.sha256(upload.data).hexdigest(),
            renditions=[] if upload.with_renditions else None,
        )
        # The object is stored before the row that names it: a crash between them leaves a stray
        # object, which a sweep removes, and never a row without its object.
        stored = original_key(attachment)
        sealed = seal(upload.data, data_key, stored)
        resources.objects.put(stored, sealed, "application/octet-stream")
        try:
            takes = {PlanQuota.STORAGE_MB: len(upload.data)}
            return idempotency.commit(resources, attachment, PROCESS_ATTACHMENT, key, takes=takes)
        except (EqualRequestCommitted, DomainError):
            with resources.unit_of_work() as uow:
                removals.forget(uow, stored)
            raise
        # After any other failure the object stays for the sweep: if the connection broke during the
        # commit, there may be a job that needs the object.

    return idempotency.once(resources, key, store)


def check(upload: Upload) -> ImageType:
    """Return the upload's type by its bytes, or refuse its size, extension or type."""
    if not upload.data:
        raise errors.ATTACHMENT_EMPTY()
    if len(upload.data) > MAX_IMAGE_BYTES:
        raise errors.ATTACHMENT_TOO_LARGE()
    if PurePosixPath(upload.filename).suffix.lower().removeprefix(".") not in ALLOWED_EXTENSIONS:
        allowed = ", .".join(sorted(ALLOWED_EXTENSIONS))
        raise errors.ATTACHMENT_UNSUPPORTED_NAME(extensions=allowed)
    image_type = sniff(upload.data)
    if image_type is None:
        raise errors.ATTACHMENT_UNSUPPORTED_TYPE()
    return image_type


def clean_filename(name: str) -> str:
    """Return the last part of a path that a client sent, without control characters."""
    base = PureWindowsPath(name).name
    printable = "".join(filter(str.isprintable, base))
    if not printable:
        raise errors.ATTACHMENT_FILENAME_MISSING()
    return printable[-MAX_IMAGE_FILENAME_CHARACTERS:]
