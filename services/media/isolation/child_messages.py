"""The messages between a worker and its converter process.

A request is a length and the image. An answer is a head (two lengths), a JSON object, and the
converted image.
"""

import json
import struct
from dataclasses import asdict

from services.media.images.outcome import ConvertedImage, UnreadableImage

REQUEST = struct.Struct(">Q")
ANSWER = struct.Struct(">IQ")


def answer_head(outcome: ConvertedImage | UnreadableImage) -> tuple[bytes, bytes]:
    """Return all that comes before the image's bytes, and those bytes, which are not copied."""
    fields = asdict(outcome)
    data = fields.pop("data", b"")
    text = json.dumps(fields).encode()
    return ANSWER.pack(len(text), len(data)) + text, data


def outcome(text: bytes, data: bytes) -> ConvertedImage | UnreadableImage:
    fields = json.loads(text)
    if "code" in fields:
        return UnreadableImage(**fields)
    return ConvertedImage(data=data, **fields)
