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

ATTACHMENT_NOT_FOUND = not_found("attachment.not_found", "There is no attachment with this id.")
# The error of a conversion job whose attachment was deleted.
ATTACHMENT_DELETED = not_found("attachment.deleted", "The attachment was deleted.")
# The owner deleted the attachment during or after its upload.
ATTACHMENT_GONE = not_found("attachment.not_found", "The attachment was deleted.")
ATTACHMENT_NOT_RETRYABLE = conflict(
    "attachment.not_retryable",
    "The image can't be processed again, because the uploaded file is invalid or was removed.",
)
ATTACHMENT_FILE_MISSING = malformed(
    "attachment.file_missing", "The form has no file in the part '{part}'.", part="file"
)
ATTACHMENT_SEVERAL_FILES = malformed(
    "attachment.several_files",
    "The form must contain exactly one file, in the part '{part}'.",
    part="file",
)
ATTACHMENT_FILENAME_MISSING = malformed(
    "attachment.filename_missing", "The part 'file' of the form has no filename."
)
ATTACHMENT_EMPTY = invalid("attachment.empty", "The uploaded file is empty.")
ATTACHMENT_TOO_LARGE = too_large(
    "attachment.too_large",
    f"A file can have at most {MAX_IMAGE_MEGABYTES} MB ({MAX_IMAGE_BYTES:,} bytes).",
)
ATTACHMENT_UNSUPPORTED_NAME = unsupported_type(
    "attachment.unsupported_type",
    "The file name must end in one of .{extensions}.",
    extensions="gif, .ico, .jpeg, .jpg, .png, .webp",
)
ATTACHMENT_UNSUPPORTED_TYPE = unsupported_type(
    "attachment.unsupported_type", "The file is not a PNG, JPEG, GIF, WebP or ICO image."
)
ATTACHMENT_ORIGINAL_MISSING = invalid(
    "attachment.original_missing", "The uploaded file no longer exists."
)
ATTACHMENT_DAMAGED = invalid("attachment.damaged", "The uploaded file was damaged in storage.")

MEDIA_NOT_FOUND = not_found("media.not_found", "There is no file at this URL.")
MEDIA_DAMAGED = damaged(
    "media.damaged", "The file can't be served because it was damaged in storage."
)
MEDIA_RANGE_UNSATISFIABLE = range_refused(
    "media.range_unsatisfiable", "The requested range starts after the end of the file."
)

SIGNED_LINK_INVALID = forbidden(
    "link.invalid", "This link is invalid or has expired. Request a new link."
)
SIGNED_LINK_EXPIRES_IN = invalid(
    "link.expires_in",
    "A link must expire after 1 to {longest:,} seconds (7 days).",
    longest=604_800,
)
SIGNED_LINK_NOT_ENCRYPTED = conflict(
    "link.not_encrypted",
    "This file needs no signed link, because the file isn't encrypted. Anyone can open the "
    "file's view_url.",
)

IMAGE_EMPTY = invalid("image.empty", "The file is empty.")
IMAGE_UNSUPPORTED_TYPE = invalid(
    "image.unsupported_type", "The file is not a PNG, JPEG, GIF, WebP or ICO image."
)
# ``reason`` comes from the parser of the image format, and contains the position of the fault.
IMAGE_UNREADABLE = invalid(
    "image.unreadable", "{reason}", reason="The PNG has no header or no image data."
)
IMAGE_TRUNCATED = invalid(
    "image.truncated",
    "{reason}",
    reason="The PNG is incomplete: its 1,024 bytes contain no end chunk.",
)
IMAGE_SIDE_TOO_LONG = invalid(
    "image.side_too_long",
    "An image can have at most {most:,} pixels per side. The size in the {place} is {width:,} by "
    "{height:,} pixels.",
    most=16_383,
    place="PNG header",
    width=20_000,
    height=100,
)
IMAGE_TOO_MANY_PIXELS = invalid(
    "image.too_many_pixels",
    "An image can have at most {most:,} pixels. The size in the {place} is {width:,} by "
    "{height:,} pixels, {area:,} pixels in total.",
    most=50_000_000,
    place="PNG header",
    width=10_000,
    height=6_000,
    area=60_000_000,
)
IMAGE_TOO_MANY_FRAMES = invalid(
    "image.too_many_frames",
    "An animation can have at most {most:,} frames, but the {place} has {frames:,} or more.",
    most=1_000,
    place="GIF",
    frames=1_001,
)
IMAGE_ANIMATION_TOO_LARGE = invalid(
    "image.animation_too_large",
    "The frames of an animation can have at most {most:,} pixels in total. The {place} has "
    "{drawn:,} pixels in total, in {frames:,} frames with {area:,} pixels each.",
    most=100_000_000,
    place="GIF",
    frames=200,
    area=1_000_000,
    drawn=200_000_000,
)
IMAGE_OUT_OF_MEMORY = invalid(
    "image.out_of_memory", "The image exceeds the memory limit for one image."
)
IMAGE_TIMEOUT = invalid(
    "image.timeout",
    "The image could not be processed within {seconds:g} seconds of CPU time.",
    seconds=30,
)
IMAGE_CRASHED = invalid(
    "image.crashed", "The image converter crashed ({cause}).", cause="signal SIGSEGV"
)
