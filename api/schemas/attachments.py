"""The request and response bodies of the API endpoints for attachments."""

from dataclasses import asdict
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints

from api.schemas.envelope import AtMost, Body, ChangesBody, Schema, Timestamp, Url
from core.settings import Settings
from models import Attachment
from services.attachments.files import MediaFile, find_thumbnail, list_renditions

_CHECKSUM = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_MAX_ALT_TEXT_CHARACTERS = 2_000
MAX_PICTURE_TITLE_CHARACTERS = 255
_MAX_PICTURE_TAGS = 50
_MAX_PICTURE_TAG_CHARACTERS = 64

# An image's tag is a single line without spaces around it.
PictureTag = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True,
        min_length=1,
        max_length=_MAX_PICTURE_TAG_CHARACTERS,
        pattern=r"^[^\x00-\x1f\x7f]+$",
    ),
]


class RenditionRecord(Schema):
    name: str = Field(
        description="The kind of copy. 320, 640 and 1280 are WebP images for web pages, named "
        "by their width in pixels. mail is a JPEG or PNG image for mail programs "
        "that don't support WebP, at most 1,280 pixels wide.",
        examples=["640"],
    )
    mime_type: str = Field(examples=["image/webp"])
    width: int = Field(description="Width in pixels", examples=[640])
    height: int = Field(description="Height in pixels", examples=[427])
    size: int = Field(description="Size of the stored file in bytes", examples=[15213])
    checksum: str = Field(
        description="SHA-256 of the stored file before encryption, in hex",
        examples=[_CHECKSUM],
    )
    filename: str = Field(examples=["k3v09xq2m7ta-640.webp"])
    pathname: str = Field(examples=["media/k3v09xq2m7ta-640.webp"])
    view_url: Url = Field(examples=["https://api.example.com/media/k3v09xq2m7ta-640.webp"])


class AttachmentRecord(Schema):
    id: int
    hash_id: str = Field(
        description="12 random characters from a-z and 0-9", examples=["k3v09xq2m7ta"]
    )
    user_id: int
    status: int = Field(
        description="0 for created, 1 for processing, 2 for ready, 3 for failed", examples=[2]
    )
    encrypted: bool = Field(examples=[False])
    size: int = Field(
        description="Size of the stored file in bytes, or 0 until the attachment is ready",
        examples=[48213],
    )
    mime_type: str = Field(examples=["image/webp"])
    pathname: str = Field(examples=["media/k3v09xq2m7ta.webp"])
    filename: str = Field(examples=["k3v09xq2m7ta.webp"])
    checksum: str = Field(
        description="SHA-256 of the stored file before encryption, in hex. Empty until the "
        "attachment is ready.",
        examples=[_CHECKSUM],
    )
    checksum_method: str = Field(examples=["sha256"])
    width: int | None = Field(description="Width in pixels", examples=[1200])
    height: int | None = Field(description="Height in pixels", examples=[800])
    frames: int | None = Field(description="Number of frames, or 1 for a still image", examples=[1])
    blurhash: str | None = Field(
        description="A short code from which a blurred placeholder is painted while the image "
        "loads",
        examples=["LEHV6nWB2yk8pyo0adR*.7kCMdnj"],
    )
    original_filename: str = Field(examples=["harbour.jpg"])
    original_mime_type: str = Field(examples=["image/jpeg"])
    original_size: int = Field(description="Size of the uploaded file in bytes", examples=[2310446])
    original_checksum: str = Field(
        description="SHA-256 of the uploaded file, in hex",
        examples=["60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"],
    )
    renditions: list[RenditionRecord] = Field(
        description="Smaller copies for web pages, narrowest first, and one copy for e-mails, "
        "if requested at upload. No copy is wider than the image."
    )
    thumbnail: RenditionRecord | None = Field(
        description="A still WebP copy of at most 320 × 240 pixels and 40 KB, for overviews. null "
        "until the attachment is ready."
    )
    alt_text: str | None = Field(
        description="Alt text, which describes the image. Empty for a decorative image.",
        examples=["Boats in the harbour at dusk"],
    )
    title: str | None = Field(examples=["The harbour"])
    tags: list[str] = Field(examples=[["harbour", "Lisbon"]])
    error: dict[str, Any] | None = Field(
        description="Error code and message of a failed conversion", examples=[None]
    )
    created_at: Timestamp
    updated_at: Timestamp
    view_url: Url = Field(examples=["https://api.example.com/media/k3v09xq2m7ta.webp"])

    @classmethod
    def of(cls, attachment: Attachment, settings: Settings) -> Self:
        # Encrypted files must not be loaded through a CDN, because the CDN would see their content.
        base = settings.public_base if attachment.encrypted else settings.media_base

        def locate(filename: str) -> dict[str, str]:
            return {"pathname": f"media/{filename}", "view_url": f"{base}/media/{filename}"}

        def describe(file: MediaFile) -> dict[str, Any]:
            return {**asdict(file), **locate(file.filename)}

        thumbnail = find_thumbnail(attachment)
        renditions = [each for each in list_renditions(attachment) if each != thumbnail]
        return cls.of_row(
            attachment,
            **locate(attachment.filename),
            checksum_method="sha256",
            renditions=list(map(describe, renditions)),
            thumbnail=thumbnail and describe(thumbnail),
        )


class AttachmentChanges(ChangesBody):
    alt_text: str | None = Field(
        default=None,
        max_length=_MAX_ALT_TEXT_CHARACTERS,
        description="Alt text, which describes the image. Empty for a decorative image.",
        examples=["Boats in the harbour at dusk"],
    )
    title: str | None = Field(
        default=None, max_length=MAX_PICTURE_TITLE_CHARACTERS, examples=["The harbour"]
    )
    tags: Annotated[list[PictureTag], AtMost(_MAX_PICTURE_TAGS)] = Field(
        default=[],
        description="Tags of the attachment. If tags differ only in upper and lower case, "
        "only the first tag is stored.",
        examples=[["harbour", "Lisbon"]],
    )


class NewLink(Body):
    expires_in: int = Field(
        ge=1,
        le=604_800,
        description="Lifetime of the URL in seconds, at most 7 days",
        examples=[3600],
    )
    filename: str | None = Field(
        default=None,
        description="File name of a smaller copy. Omit this field for the attachment itself.",
        examples=[None],
    )


class LinkRecord(Schema):
    url: Url = Field(
        description="URL of the file. Anyone with the URL can see the file.",
        examples=[
            "https://api.example.com/media/k3v09xq2m7ta.webp?expires=1795257000&signature=Zk3nq0"
        ],
    )
    expires_at: Timestamp
