import re
from functools import partial

from sqlalchemy import func, select

from core.errors import not_found
from models import Attachment, AttachmentStatus, Job, JobStatus
from services.api_keys import Caller
from services.attachments.files import data_key, media_key, original_key, unseal
from services.attachments.upload import PROCESS
from storage.objects import ObjectMissing
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

_HASH_ID = re.compile(r"[a-z0-9]{12}\Z")
_FILENAME = re.compile(r"[a-z0-9]{12}\.(webp|png)\Z")


def get(uow: UnitOfWork, caller: Caller, hash_id: str) -> Attachment:
    """The caller's attachment; raises ``attachment.not_found``."""
    attachment = _find(uow, caller, hash_id)
    if attachment is None:
        raise not_found("attachment.not_found", "There is no such attachment.")
    return attachment


def get_by_id(uow: UnitOfWork, attachment_id: int) -> Attachment:
    attachment = uow.session.get(Attachment, attachment_id)
    if attachment is None:
        raise not_found("attachment.not_found", "The attachment was deleted.")
    return attachment


def list_of(uow: UnitOfWork, caller: Caller, *, offset: int, limit: int) -> list[Attachment]:
    """The caller's attachments, newest first."""
    query = (
        select(Attachment)
        .where(Attachment.user_id == caller.user_id)
        .order_by(Attachment.id.desc())
        .offset(offset)
        .limit(limit)
    )
    return list(uow.session.scalars(query))


def delete(uow: UnitOfWork, caller: Caller, hash_id: str) -> int:
    """Forget the attachment, then its objects; raises ``attachment.not_found``."""
    attachment = get(uow, caller, hash_id)
    _cancel_processing(uow, attachment)
    uow.session.delete(attachment)
    for key in (media_key(attachment), original_key(attachment)):
        uow.after_commit(partial(uow.objects.remove, key))
    return 1


def find_media(uow: UnitOfWork, filename: str) -> Attachment:
    """The ready attachment of that file name; raises ``media.not_found``."""
    query = select(Attachment).where(
        Attachment.filename == filename, Attachment.status == AttachmentStatus.READY
    )
    attachment = uow.session.scalar(query) if _FILENAME.match(filename) else None
    if attachment is None:
        raise media_not_found()
    return attachment


def media_not_found() -> Exception:
    return not_found("media.not_found", "There is no such file.")


def read_decrypted(resources: Resources, attachment: Attachment) -> bytes:
    """An encrypted attachment's plain bytes, all checked before the first is returned."""
    key = media_key(attachment)
    try:
        return unseal(resources.objects.get(key), data_key(resources, attachment), key)
    except ObjectMissing:
        raise media_not_found() from None


def _find(uow: UnitOfWork, caller: Caller, hash_id: str) -> Attachment | None:
    if not _HASH_ID.match(hash_id):
        return None
    return uow.session.scalar(
        select(Attachment).where(
            Attachment.hash_id == hash_id, Attachment.user_id == caller.user_id
        )
    )


def _cancel_processing(uow: UnitOfWork, attachment: Attachment) -> None:
    """End the job with its subject; a worker that holds it finds its lease gone."""
    jobs = uow.session.scalars(
        select(Job)
        .where(
            Job.user_id == attachment.user_id,
            Job.kind == PROCESS.name,
            Job.subject_id == attachment.id,
            Job.finished_at.is_(None),
        )
        .with_for_update()
    )
    for job in jobs:
        job.status = JobStatus.CANCELLED
        job.lease_expires_at = None
        job.finished_at = func.now()
        job.error = {"code": "attachment.deleted", "message": "The attachment was deleted."}
