"""Uploaded images and the files made of them.

Those of ``image.*`` are made in the converter's child process too, which has to start quickly: all
that is imported here is of the standard library.
"""

from core.errors import Kind
from core.refusals.refusal import Refusal
from core.upload_limits import MAX_IMAGE_BYTES

ATTACHMENT_NOT_FOUND = Refusal(
    Kind.NOT_FOUND, "attachment.not_found", "There is no such attachment."
)
# Why the job of a deleted attachment was cancelled.
ATTACHMENT_DELETED = Refusal(Kind.NOT_FOUND, "attachment.deleted", "The attachment was deleted.")
# While, or since, it was uploaded.
ATTACHMENT_GONE = Refusal(Kind.NOT_FOUND, "attachment.not_found", "The attachment was deleted.")
ATTACHMENT_FILE_MISSING = Refusal(
    Kind.MALFORMED,
    "attachment.file_missing",
    "The part '{part}' with a file is missing.",
    examples={"part": "file"},
)
ATTACHMENT_SEVERAL_FILES = Refusal(
    Kind.MALFORMED,
    "attachment.several_files",
    "Send one file in the part '{part}', not more.",
    examples={"part": "file"},
)
ATTACHMENT_FILENAME_MISSING = Refusal(
    Kind.MALFORMED, "attachment.filename_missing", "The part 'file' needs a filename."
)
ATTACHMENT_EMPTY = Refusal(Kind.INVALID, "attachment.empty", "The uploaded file is empty.")
ATTACHMENT_TOO_LARGE = Refusal(
    Kind.TOO_LARGE,
    "attachment.too_large",
    f"A file has at most {MAX_IMAGE_BYTES:,} bytes (5 MB).",
)
ATTACHMENT_UNSUPPORTED_NAME = Refusal(
    Kind.UNSUPPORTED_TYPE,
    "attachment.unsupported_type",
    "The file's name must end in one of .{extensions}.",
    examples={"extensions": "gif, .ico, .jpeg, .jpg, .png, .webp"},
)
ATTACHMENT_UNSUPPORTED_TYPE = Refusal(
    Kind.UNSUPPORTED_TYPE,
    "attachment.unsupported_type",
    "The file's bytes are none of PNG, JPEG, GIF, WebP and ICO.",
)
ATTACHMENT_ORIGINAL_MISSING = Refusal(
    Kind.INVALID, "attachment.original_missing", "The uploaded bytes are gone."
)
ATTACHMENT_DAMAGED = Refusal(
    Kind.INVALID, "attachment.damaged", "The upload was damaged in storage."
)

MEDIA_NOT_FOUND = Refusal(Kind.NOT_FOUND, "media.not_found", "There is no such file.")
MEDIA_DAMAGED = Refusal(
    Kind.DAMAGED, "media.damaged", "The stored file is damaged; it is not served."
)
MEDIA_RANGE_UNSATISFIABLE = Refusal(
    Kind.RANGE,
    "media.range_unsatisfiable",
    "The range begins behind the end of the file.",
)

SIGNED_LINK_INVALID = Refusal(
    Kind.FORBIDDEN,
    "link.invalid",
    "The link is not valid, or not any more; ask for a new one.",
)
SIGNED_LINK_EXPIRES_IN = Refusal(
    Kind.INVALID,
    "link.expires_in",
    "A link lasts 1 to {longest:,} seconds (7 days).",
    examples={"longest": 604_800},
)
SIGNED_LINK_NOT_ENCRYPTED = Refusal(
    Kind.CONFLICT,
    "link.not_encrypted",
    "This file isn't encrypted: its view_url is open to everybody.",
)

IMAGE_EMPTY = Refusal(Kind.INVALID, "image.empty", "The file has no bytes.")
IMAGE_UNSUPPORTED_TYPE = Refusal(
    Kind.INVALID,
    "image.unsupported_type",
    "The first bytes are not those of a PNG, JPEG, GIF, WebP or ICO.",
)
# Each reader of a format says where it found what is wrong.
IMAGE_UNREADABLE = Refusal(
    Kind.INVALID,
    "image.unreadable",
    "{reason}",
    examples={"reason": "The PNG has no header or no image data."},
)
IMAGE_TRUNCATED = Refusal(
    Kind.INVALID,
    "image.truncated",
    "{reason}",
    examples={"reason": "The PNG's 1,024 bytes stop before its end chunk."},
)
IMAGE_SIDE_TOO_LONG = Refusal(
    Kind.INVALID,
    "image.side_too_long",
    "A side may have at most {most:,} pixels; the {place} gives {width:,} by {height:,}.",
    examples={"most": 16_383, "place": "PNG header", "width": 20_000, "height": 100},
)
IMAGE_TOO_MANY_PIXELS = Refusal(
    Kind.INVALID,
    "image.too_many_pixels",
    "An image may have at most {most:,} pixels; the {place} gives {width:,} by {height:,} = "
    "{area:,}.",
    examples={
        "most": 50_000_000,
        "place": "PNG header",
        "width": 10_000,
        "height": 6_000,
        "area": 60_000_000,
    },
)
IMAGE_TOO_MANY_FRAMES = Refusal(
    Kind.INVALID,
    "image.too_many_frames",
    "An animation may have at most {most:,} frames; the {place} has {frames:,} or more.",
    examples={"most": 1_000, "place": "GIF", "frames": 1_001},
)
IMAGE_ANIMATION_TOO_LARGE = Refusal(
    Kind.INVALID,
    "image.animation_too_large",
    "Frames times area may be at most {most:,} pixels; the {place} has {frames:,} frames of "
    "{area:,} pixels = {drawn:,}.",
    examples={
        "most": 100_000_000,
        "place": "GIF",
        "frames": 200,
        "area": 1_000_000,
        "drawn": 200_000_000,
    },
)
IMAGE_OUT_OF_MEMORY = Refusal(
    Kind.INVALID, "image.out_of_memory", "The image needs more memory than one may use."
)
IMAGE_TIMEOUT = Refusal(
    Kind.INVALID,
    "image.timeout",
    "An image may take {seconds:g} s; this one took longer.",
    examples={"seconds": 30},
)
IMAGE_CRASHED = Refusal(
    Kind.INVALID,
    "image.crashed",
    "The converter ended by {cause}.",
    examples={"cause": "signal SIGSEGV"},
)
IMAGE_CRASHED_TWICE = Refusal(
    Kind.INVALID, "image.crashed", "The converter left twice without an answer."
)
