"""Reads, changes and deletes a caller's attachments, and signs links to their files."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, or_, select

from core import clock
from core.errors import DomainError
from core.errors import media as errors
from core.signed_urls import SignedUrls
from models import Attachment, AttachmentStatus, Job, User
from services import paging, removals
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from services.attachments import files
from services.attachments.files import MediaFile
from services.attachments.upload import PROCESS_ATTACHMENT
from services.feed.catalogue import FeedEventType, announce_event
from services.jobs import records
from services.jobs.idempotency import AcceptedJob
from services.paging import PageOfRows, PageRequest
from storage.encryption import DecryptionFailed, unseal
from storage.objects import ObjectMissing
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MEDIA_URLS = SignedUrls("media-link", prefix="/media/")
MAX_LINK_LIFETIME = timedelta(days=7)
_HASH_ID_PATTERN = re.compile(r"[a-z0-9]{12}\Z")


def get_attachment(uow: UnitOfWork, caller: Caller, hash_id: str) -> Attachment:
    query = select(Attachment).where(
        Attachment.hash_id == hash_id, Attachment.user_id == caller.account_id
    )
    attachment = uow.session.scalar(query) if _HASH_ID_PATTERN.match(hash_id) else None
    if attachment is None:
        raise errors.ATTACHMENT_NOT_FOUND()
    return attachment


def find_outcome(uow: UnitOfWork, accepted: AcceptedJob) -> Attachment | DomainError:
    attachment = uow.session.get(Attachment, accepted.subject_id)
    if attachment is not None and attachment.status != AttachmentStatus.FAILED:
        return attachment
    job = uow.session.get(Job, accepted.job_id)
    if job is None or job.error is None or job.error["code"] == errors.ATTACHMENT_DELETED.code:
        return errors.ATTACHMENT_GONE()
    return records.restore_error(job)


def find_retryable_job(uow: UnitOfWork, attachment: Attachment) -> Job | None:
    if attachment.status != AttachmentStatus.FAILED:
        return None
    job = records.find_recent_job(uow, attachment.user_id, [PROCESS_ATTACHMENT], attachment.id)
    has_original = removals.can_keep_object(uow, files.build_original_key(attachment.hash_id))
    return job if job is not None and records.is_retry_sensible(job) and has_original else None


def retry_conversion(uow: UnitOfWork, caller: Caller, hash_id: str) -> None:
    job = find_retryable_job(uow, get_attachment(uow, caller, hash_id))
    if job is None:
        raise errors.ATTACHMENT_NOT_RETRYABLE()
    records.retry_own_job(uow, caller, job.id)


def delete_failed_attachment(uow: UnitOfWork, accepted: AcceptedJob) -> None:
    """Delete an attachment that could not be converted. The job keeps the error."""
    has_failed = Attachment.status == AttachmentStatus.FAILED
    statement = delete(Attachment).where(Attachment.id == accepted.subject_id, has_failed)
    uow.session.execute(statement)


def list_attachments(
    uow: UnitOfWork, caller: Caller, page: PageRequest, *, words: str = ""
) -> PageOfRows[Attachment]:
    """Return the caller's attachments whose name, title or alternative text contains ``words``."""
    query = select(Attachment)
    if words:
        texts = (Attachment.original_filename, Attachment.title, Attachment.alt_text)
        query = query.where(or_(*(each.icontains(words, autoescape=True) for each in texts)))
    query = paging.select_owner_page(query, Attachment.user_id, caller.account_id, page)
    return paging.read_page(uow, query, page)


def change_attachment(
    uow: UnitOfWork, caller: Caller, hash_id: str, changes: Mapping[str, Any]
) -> Attachment:
    """Change an attachment. If several tags differ only in case, only the first is stored."""
    attachment = get_attachment(uow, caller, hash_id)
    for name, value in changes.items():
        setattr(attachment, name, _remove_duplicates(value) if name == "tags" else value)
    uow.session.flush()
    return attachment


def _remove_duplicates(tags: Sequence[str]) -> list[str]:
    tag_by_folded = dict[str, str]()
    for tag in tags:
        tag_by_folded.setdefault(tag.casefold(), tag)
    return list(tag_by_folded.values())


def delete_attachment(uow: UnitOfWork, caller: Caller, hash_id: str) -> int:
    """Delete the caller's attachment and its stored files, and cancel its conversion. Return 1."""
    row = get_attachment(uow, caller, hash_id)
    processing = select(Job).where(records.is_working_on(row.id, [PROCESS_ATTACHMENT], row.user_id))
    for job in uow.session.scalars(processing.with_for_update()):
        # Cancel the conversion job, so that the worker that is converting the image loses its
        # lease.
        records.cancel_with_subject(uow, job, errors.ATTACHMENT_DELETED())
    uow.session.delete(row)
    announce_event(uow, row.user_id, FeedEventType.ATTACHMENT_DELETED, row.id, hash_id=row.hash_id)
    removals.forget_objects(uow, *files.list_file_keys(row), files.build_original_key(row.hash_id))
    return 1


def find_media(uow: UnitOfWork, filename: str) -> tuple[Attachment, MediaFile]:
    hash_id = files.parse_hash_id(filename)
    query = select(Attachment).join(User, User.id == Attachment.user_id)
    query = query.where(Attachment.hash_id == hash_id, Attachment.status == AttachmentStatus.READY)
    # Hide the files of an erased person immediately, because removing all files takes a while.
    attachment = uow.session.scalar(query.where(User.erased_at.is_(None))) if hash_id else None
    file = files.find_file(attachment, filename) if attachment else None
    if attachment is None or file is None:
        raise errors.MEDIA_NOT_FOUND()
    return attachment, file


def read_encrypted_file(resources: Resources, attachment: Attachment, file: MediaFile) -> bytes:
    """Decrypt an attachment's file, after verifying the whole file."""
    key = files.get_file_key(attachment, file)
    try:
        return unseal(resources.objects.get(key), files.unwrap_data_key(resources, attachment), key)
    except ObjectMissing:
        raise errors.MEDIA_NOT_FOUND() from None
    except DecryptionFailed as error:
        raise errors.MEDIA_DAMAGED() from error


def sign_link(
    uow: UnitOfWork, caller: Caller, hash_id: str, *, expires_in: int, filename: str | None = None
) -> tuple[str, datetime]:
    """Sign a URL for a rendition's file, or for the converted image if ``filename`` is ``None``."""
    require_recent_login(uow, caller)
    attachment = get_attachment(uow, caller, hash_id)
    max_seconds = int(MAX_LINK_LIFETIME.total_seconds())
    if not 1 <= expires_in <= max_seconds:
        raise errors.SIGNED_LINK_EXPIRES_IN(longest=max_seconds)
    if not attachment.encrypted:
        raise errors.SIGNED_LINK_NOT_ENCRYPTED()
    name = attachment.filename if filename is None else filename
    if files.find_file(attachment, name) is None:
        raise errors.MEDIA_NOT_FOUND()
    return MEDIA_URLS.create(
        uow.settings.keyring,
        name,
        base=uow.settings.public_base,
        lifetime=timedelta(seconds=expires_in),
        now=clock.now(),
    )
