"""Names the stored files of an attachment, and decrypts the attachment's data key."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from models import Attachment
from services.attachments.images.outcome import ConvertedImage, Rendition, RenditionName
from storage.encryption import WrappedKey
from storage.resources import Resources

ORIGINALS_PREFIX = "originals/"
MEDIA_PREFIX = "media/"
RENDITIONS_PREFIX = "renditions/"
# Maps the MIME type of a stored image to the image's file name extension.
_EXTENSIONS = {"image/webp": "webp", "image/jpeg": "jpg", "image/png": "png"}
_FILENAME_PATTERN = re.compile(
    rf"(?P<hash_id>[a-z0-9]{{12}})(?:-(?:{'|'.join(RenditionName)})\.(?:webp|jpg|png)|\.(?:webp|png))\Z"
)


@dataclass(frozen=True)
class MediaFile:
    """A downloadable file of an attachment, either the converted image or a rendition.

    Attributes:
        name: the name of the rendition, or ``None`` for the converted image.
        size: the size of the unencrypted file in bytes.
        checksum: the SHA-256 hash of the unencrypted file, in hexadecimal.
    """

    name: str | None
    filename: str
    mime_type: str
    size: int
    checksum: str
    width: int | None
    height: int | None


def build_original_key(hash_id: str) -> str:
    return ORIGINALS_PREFIX + hash_id


def build_media_key(attachment: Attachment) -> str:
    return MEDIA_PREFIX + attachment.filename


def build_renditions_prefix(attachment: Attachment) -> str:
    return f"{RENDITIONS_PREFIX}{attachment.hash_id}/"


def list_file_keys(attachment: Attachment) -> Sequence[str]:
    return [build_media_key(attachment), build_renditions_prefix(attachment)]


def get_file_key(attachment: Attachment, file: MediaFile) -> str:
    folder = MEDIA_PREFIX if file.name is None else build_renditions_prefix(attachment)
    return folder + file.filename


def list_renditions(attachment: Attachment) -> Sequence[MediaFile]:
    return [MediaFile(**fields) for fields in attachment.renditions or ()]


def find_thumbnail(attachment: Attachment) -> MediaFile | None:
    """Return the thumbnail, or ``None`` if the image has no thumbnail yet."""
    renditions = list_renditions(attachment)
    return next((each for each in renditions if each.name == RenditionName.THUMBNAIL), None)


def list_converted_files(
    attachment: Attachment, converted: ConvertedImage
) -> Sequence[tuple[MediaFile, bytes]]:
    files = [(_describe_file(None, attachment.filename, converted), converted.data)]
    files += [(describe_rendition(attachment, each), each.data) for each in converted.renditions]
    return files


def describe_rendition(attachment: Attachment, rendition: Rendition) -> MediaFile:
    extension = _EXTENSIONS[rendition.mime_type]
    filename = f"{attachment.hash_id}-{rendition.name}.{extension}"
    return _describe_file(rendition.name.value, filename, rendition)


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


def find_file(row: Attachment, filename: str) -> MediaFile | None:
    image = MediaFile(
        name=None,
        filename=row.filename,
        mime_type=row.mime_type,
        size=row.size,
        checksum=row.checksum,
        width=row.width,
        height=row.height,
    )
    files = (image, *list_renditions(row))
    return next((file for file in files if file.filename == filename), None)


def parse_hash_id(filename: str) -> str | None:
    match = _FILENAME_PATTERN.match(filename)
    return match["hash_id"] if match else None


def unwrap_data_key(resources: Resources, attachment: Attachment) -> bytes | None:
    if attachment.wrapped_key is None or attachment.wrapped_by is None:
        return None
    wrapped = WrappedKey(attachment.wrapped_by, attachment.wrapped_key)
    return resources.key_wrapper.unwrap(wrapped, attachment.hash_id)
