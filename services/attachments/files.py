"""The files of an attachment: where each is stored, and under which data key."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from models import Attachment
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
        name: the name of the rendition, or ``None`` for the converted image.
        size: the size of the plain file in bytes.
        checksum: the SHA-256 of the plain file, in hex.
        width: the width in pixels. ``height`` is in pixels too.
    """

    name: str | None
    filename: str
    mime_type: str
    size: int
    checksum: str
    width: int | None
    height: int | None


def original_key(hash_id: str) -> str:
    return ORIGINALS + hash_id


def media_key(attachment: Attachment) -> str:
    return MEDIA + attachment.filename


def renditions_key(attachment: Attachment) -> str:
    """Return the folder of the renditions, which ends with a slash."""
    return f"{RENDITIONS}{attachment.hash_id}/"


def keys_of_files(attachment: Attachment) -> Sequence[str]:
    """Return the keys of the files that readers fetch. The renditions share a folder."""
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
    """Return the files that a conversion produced, with their plain bytes. The image is first."""
    files = [(_describe_file(None, attachment.filename, converted), converted.data)]
    for each in converted.renditions:
        filename = f"{attachment.hash_id}-{each.name}.{_ENDINGS[each.mime_type]}"
        files.append((_describe_file(each.name.value, filename, each), each.data))
    return files


def _describe_file(name: str | None, filename: str, image: ConvertedImage | Rendition) -> MediaFile:
    return MediaFile(
        name=name,
        filename=filename,
        mime_type=image.mime_type,
        size=len(image.data),
        checksum=hashlib.sha256(image.data).hexdigest(),
        width=image.width,
        height=image.height,
    )


def file_named(row: Attachment, filename: str) -> MediaFile | None:
    """Return the file with this name of a ready attachment, or ``None``."""
    image = MediaFile(
        name=None,
        filename=row.filename,
        mime_type=row.mime_type,
        size=row.size,
        checksum=row.checksum,
        width=row.width,
        height=row.height,
    )
    files = (image, *rendition_files(row))
    return next((file for file in files if file.filename == filename), None)


def hash_id_in(filename: str) -> str | None:
    """Return the hash id of the attachment in this file name."""
    match = _FILENAME.match(filename)
    return match["hash_id"] if match else None


def data_key(resources: Resources, attachment: Attachment) -> bytes | None:
    """Return the key of an encrypted attachment's objects, or ``None`` for a plain attachment."""
    if attachment.wrapped_key is None or attachment.wrapped_by is None:
        return None
    wrapped = WrappedKey(attachment.wrapped_by, attachment.wrapped_key)
    return resources.key_wrapper.unwrap(wrapped, attachment.hash_id)
