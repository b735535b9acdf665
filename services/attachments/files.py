"""The stored objects of an attachment: their names, and the key that encrypts them."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import InstrumentedAttribute

from models import Attachment, MemberExport, MemberImport, WebhookSecret
from services.attachments.images.outcome import ConvertedImage, Rendition, RenditionName
from storage.encryption import WrappedKey
from storage.resources import Resources

ORIGINALS = "originals/"
MEDIA = "media/"
RENDITIONS = "renditions/"
_ENDINGS = {"image/webp": "webp", "image/jpeg": "jpg", "image/png": "png"}
_FILENAME = re.compile(
    rf"(?P<hash_id>[a-z0-9]{{12}})(?:-(?:{'|'.join(RenditionName)})\.(?:webp|jpg|png)|\.(?:webp|png))\Z"
)


@dataclass(frozen=True)
class MediaFile:
    """A file that readers fetch: the converted image of an attachment, or a rendition of it.

    Attributes:
        name: which rendition it is; ``None`` for the converted image.
        size: in bytes, of the plain file.
        checksum: SHA-256 of the plain file, in hex.
        width: in pixels, as ``height``.
    """

    name: str | None
    filename: str
    mime_type: str
    size: int
    checksum: str
    width: int | None
    height: int | None


def original_key(attachment: Attachment) -> str:
    return ORIGINALS + attachment.hash_id


def media_key(attachment: Attachment) -> str:
    return MEDIA + attachment.filename


def renditions_key(attachment: Attachment) -> str:
    """Return the folder of the renditions, with a slash at its end."""
    return f"{RENDITIONS}{attachment.hash_id}/"


def keys_of_files(attachment: Attachment) -> Sequence[str]:
    """Return what readers' files are stored under; a folder if renditions were asked for."""
    folders = [] if attachment.renditions is None else [renditions_key(attachment)]
    return [media_key(attachment), *folders]


def key_of_file(attachment: Attachment, file: MediaFile) -> str:
    folder = MEDIA if file.name is None else renditions_key(attachment)
    return folder + file.filename


def rendition_files(attachment: Attachment) -> Sequence[MediaFile]:
    return [MediaFile(**each) for each in attachment.renditions or ()]


def converted_files(
    attachment: Attachment, converted: ConvertedImage
) -> Sequence[tuple[MediaFile, bytes]]:
    """Return what a conversion made, with its plain bytes: the image first."""
    files = [(_described(None, attachment.filename, converted), converted.data)]
    for each in converted.renditions:
        filename = f"{attachment.hash_id}-{each.name}.{_ENDINGS[each.mime_type]}"
        files.append((_described(each.name.value, filename, each), each.data))
    return files


def _described(name: str | None, filename: str, made: ConvertedImage | Rendition) -> MediaFile:
    size, checksum = len(made.data), hashlib.sha256(made.data).hexdigest()
    return MediaFile(name, filename, made.mime_type, size, checksum, made.width, made.height)


def file_named(row: Attachment, filename: str) -> MediaFile | None:
    """Return the file of a ready attachment that has this name, if it has it."""
    size, checksum = row.size, row.checksum
    whole = MediaFile(None, row.filename, row.mime_type, size, checksum, row.width, row.height)
    files = (whole, *rendition_files(row))
    return next((file for file in files if file.filename == filename), None)


def hash_id_in(filename: str) -> str | None:
    """Return the attachment that a file of this name would belong to."""
    found = _FILENAME.match(filename)
    return found["hash_id"] if found else None


def data_key(resources: Resources, attachment: Attachment) -> bytes | None:
    """Return the key of an encrypted attachment's objects; ``None`` for a plain one."""
    if attachment.wrapped_key is None or attachment.wrapped_by is None:
        return None
    wrapped = WrappedKey(attachment.wrapped_by, attachment.wrapped_key)
    return resources.key_wrapper.unwrap(wrapped, attachment.hash_id)


_MAX_BATCH_ROWS = 500
# Each data key was wrapped for this name, and only the name opens it.
_CONTEXTS: tuple[InstrumentedAttribute[str], ...] = (
    Attachment.hash_id,
    MemberImport.object_prefix,
    MemberExport.object_prefix,
    WebhookSecret.context,
)


def rotate(resources: Resources) -> Iterator[int]:
    """Rewrap each data key that an older encryption key wraps; yields the number of each batch.

    Objects stay as they are. Each batch is a transaction, so an operator may stop the rotation and
    run it again, while the service runs. Raises ``Tampered`` for a data key that no key of the
    keyring unwraps.
    """
    return chain.from_iterable(_rotate(resources, context) for context in _CONTEXTS)


def _rotate(resources: Resources, context: InstrumentedAttribute[str]) -> Iterator[int]:
    kind: Any = context.class_
    wrapper, after = resources.key_wrapper, 0
    while True:
        with resources.unit_of_work() as uow:
            query = select(kind.id, context, kind.wrapped_by, kind.wrapped_key)
            query = query.where(kind.id > after, kind.wrapped_by != wrapper.current)
            query = query.order_by(kind.id).limit(_MAX_BATCH_ROWS).with_for_update()
            stale = uow.session.execute(query).all()
            for row_id, name, wrapped_by, wrapped_key in stale:
                again = wrapper.rewrap(WrappedKey(wrapped_by, wrapped_key), name)
                # Not by the ORM, which would set updated_at: the file is the same.
                row = update(kind.__table__).where(kind.id == row_id)
                uow.session.execute(row.values(wrapped_key=again.data, wrapped_by=again.wrapped_by))
        if not stale:
            return
        after = stale[-1].id
        yield len(stale)
