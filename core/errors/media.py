"""Errors about uploaded images and the files created from images.

This module imports only small modules, because the image converter's child process imports it and
must start quickly.
"""

from core.errors.catalogue import (
    conflict,
    damaged,
    forbidden,
    invalid,
    malformed,
    not_found,
    range_refused,
    too_large,
    unsupported_type,
)
from core.upload_limits import MAX_IMAGE_BYTES, MAX_IMAGE_MEGABYTES

ATTACHMENT_NOT_FOUND = not_found("attachment.not_found", "There is no such attachment.")
# The error of a conversion job whose attachment was deleted.
ATTACHMENT_DELETED = not_found("attachment.deleted", "The attachment was deleted.")
# The owner deleted the attachment during or after its upload.
ATTACHMENT_GONE = not_found("attachment.not_found", "The attachment was deleted.")
ATTACHMENT_FILE_MISSING = malformed(
    "attachment.file_missing", "The part '{part}' with a file is missing.", part="file"
)
ATTACHMENT_SEVERAL_FILES = malformed(
    "attachment.several_files", "Send one file in the part '{part}', not more.", part="file"
)
ATTACHMENT_FILENAME_MISSING = malformed(
    "attachment.filename_missing", "The part 'file' needs a filename."
)
ATTACHMENT_EMPTY = invalid("attachment.empty", "The uploaded file is empty.")
ATTACHMENT_TOO_LARGE = too_large(
    "attachment.too_large",
    f"A file has at most {MAX_IMAGE_MEGABYTES} MB ({MAX_IMAGE_BYTES:,} bytes).",
)
ATTACHMENT_UNSUPPORTED_NAME = unsupported_type(
    "attachment.unsupported_type",
    "The file's name must end in one of .{extensions}.",
    extensions="gif, .ico, .jpeg, .jpg, .png, .webp",
)
ATTACHMENT_UNSUPPORTED_TYPE = unsupported_type(
    "attachment.unsupported_type", "The file's bytes are none of PNG, JPEG, GIF, WebP and ICO."
)
ATTACHMENT_ORIGINAL_MISSING = invalid("attachment.original_missing", "The uploaded bytes are gone.")
ATTACHMENT_DAMAGED = invalid("attachment.damaged", "The upload was damaged in storage.")

MEDIA_NOT_FOUND = not_found("media.not_found", "There is no such file.")
MEDIA_DAMAGED = damaged("media.damaged", "The stored file is damaged; it is not served.")
MEDIA_RANGE_UNSATISFIABLE = range_refused(
    "media.range_unsatisfiable", "The range begins behind the end of the file."
)

SIGNED_LINK_INVALID = forbidden(
    "link.invalid", "The link is not valid, or not any more; ask for a new one."
)
SIGNED_LINK_EXPIRES_IN = invalid(
    "link.expires_in", "A link lasts 1 second to 7 days ({longest:,} seconds).", longest=604_800
)
SIGNED_LINK_NOT_ENCRYPTED = conflict(
    "link.not_encrypted", "This file isn't encrypted: its view_url is open to everybody."
)

IMAGE_EMPTY = invalid("image.empty", "The file has no bytes.")
IMAGE_UNSUPPORTED_TYPE = invalid(
    "image.unsupported_type", "The first bytes are not those of a PNG, JPEG, GIF, WebP or ICO."
)
# ``reason`` comes from the parser of the image format, and contains the position of the fault.
IMAGE_UNREADABLE = invalid(
    "image.unreadable", "{reason}", reason="The PNG has no header or no image data."
)
IMAGE_TRUNCATED = invalid(
    "image.truncated", "{reason}", reason="The PNG's 1,024 bytes stop before its end chunk."
)
IMAGE_SIDE_TOO_LONG = invalid(
    "image.side_too_long",
    "A side may have at most {most:,} pixels; the {place} gives {width:,} by {height:,}.",
    most=16_383,
    place="PNG header",
    width=20_000,
    height=100,
)
IMAGE_TOO_MANY_PIXELS = invalid(
    "image.too_many_pixels",
    "An image may have at most {most:,} pixels; the {place} gives {width:,} by {height:,} = "
    "{area:,}.",
    most=50_000_000,
    place="PNG header",
    width=10_000,
    height=6_000,
    area=60_000_000,
)
IMAGE_TOO_MANY_FRAMES = invalid(
    "image.too_many_frames",
    "An animation may have at most {most:,} frames; the {place} has {frames:,} or more.",
    most=1_000,
    place="GIF",
    frames=1_001,
)
IMAGE_ANIMATION_TOO_LARGE = invalid(
    "image.animation_too_large",
    "Frames times area may be at most {most:,} pixels; the {place} has {frames:,} frames of "
    "{area:,} pixels = {drawn:,}.",
    most=100_000_000,
    place="GIF",
    frames=200,
    area=1_000_000,
    drawn=200_000_000,
)
IMAGE_OUT_OF_MEMORY = invalid(
    "image.out_of_memory", "The image needs more memory than one may use."
)
IMAGE_TIMEOUT = invalid(
    "image.timeout", "An image may take {seconds:g} seconds; this one took longer.", seconds=30
)
IMAGE_CRASHED = invalid("image.crashed", "The converter ended by {cause}.", cause="signal SIGSEGV")
