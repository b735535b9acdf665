from typing import Any, Self

from pydantic import Field

from api.schemas.envelope import Body, Schema, Timestamp, Url
from core.settings import Settings
from models import Attachment


class AttachmentRecord(Schema):
    id: int
    hash_id: str = Field(
        description="12 random characters of a-z and 0-9", examples=["k3v09xq2m7ta"]
    )
    user_id: int
    status: int = Field(description="0 created, 1 processing, 2 ready, 3 failed", examples=[2])
    encrypted: bool = Field(examples=[False])
    size: int = Field(description="Bytes of the stored file; 0 until it is ready", examples=[48213])
    mime_type: str = Field(examples=["image/webp"])
    pathname: str = Field(examples=["media/k3v09xq2m7ta.webp"])
    filename: str = Field(examples=["k3v09xq2m7ta.webp"])
    checksum: str = Field(
        description="Of the stored file's plain bytes, in hex; empty until ready",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    checksum_method: str = Field(examples=["sha256"])
    width: int | None = Field(description="Pixels", examples=[1200])
    height: int | None = Field(description="Pixels", examples=[800])
    frames: int | None = Field(description="1 for a still picture", examples=[1])
    blurhash: str | None = Field(
        description="A few characters to paint while the picture loads",
        examples=["LEHV6nWB2yk8pyo0adR*.7kCMdnj"],
    )
    original_filename: str = Field(examples=["harbour.jpg"])
    original_mime_type: str = Field(examples=["image/jpeg"])
    original_size: int = Field(description="Bytes of the uploaded file", examples=[2310446])
    original_checksum: str = Field(
        description="SHA-256 of the uploaded file, in hex",
        examples=["60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"],
    )
    error: dict[str, Any] | None = Field(
        description="code and message of a failed conversion", examples=[None]
    )
    created_at: Timestamp
    updated_at: Timestamp
    view_url: Url = Field(examples=["https://api.example.com/media/k3v09xq2m7ta.webp"])

    @classmethod
    def of(cls, attachment: Attachment, settings: Settings) -> Self:
        pathname = f"media/{attachment.filename}"
        # A CDN must never see a file that only its owner may see.
        base = settings.public_base if attachment.encrypted else settings.media_base
        url = f"{base}/{pathname}"
        return cls.of_row(attachment, pathname=pathname, checksum_method="sha256", view_url=url)


class NewLink(Body):
    expires_in: int = Field(
        ge=1, le=604_800, description="Seconds that the link lasts; 7 days at most", examples=[3600]
    )


class LinkRecord(Schema):
    url: Url = Field(
        description="Anyone who has it can see the file",
        examples=[
            "https://api.example.com/media/k3v09xq2m7ta.webp?expires=1795257000&signature=Zk3nq0"
        ],
    )
    expires_at: Timestamp
