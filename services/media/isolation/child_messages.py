"""The messages between a worker and its converter process.

A request is a length, whether renditions are wanted, and the image. An answer is a head (two
lengths), a JSON object, and the files one after the other: the converted image and its renditions.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict

from services.media.images.outcome import (
    ConvertedImage,
    Rendition,
    RenditionName,
    UnreadableImage,
)

REQUEST = struct.Struct(">Q?")
ANSWER = struct.Struct(">IQ")


def answer_parts(outcome: ConvertedImage | UnreadableImage) -> Sequence[bytes]:
    """Return what makes up the answer, in order; the files' bytes are not copied."""
    fields = asdict(outcome)
    with_data = [each for each in (fields, *fields.get("renditions", ())) if "data" in each]
    files: list[bytes] = [each.pop("data") for each in with_data]
    sizes = [len(file) for file in files]
    text = json.dumps({"fields": fields, "sizes": sizes}).encode()
    return ANSWER.pack(len(text), sum(sizes)) + text, *files


def outcome(text: bytes, data: bytes) -> ConvertedImage | UnreadableImage:
    """Return what the child answered; raises ValueError for renditions that we make none of."""
    answer = json.loads(text)
    fields = answer["fields"]
    if "code" in fields:
        return UnreadableImage(**fields)
    files, rest = list[bytes](), memoryview(data)
    for size in answer["sizes"]:
        files.append(bytes(rest[:size]))
        rest = rest[size:]
    renditions = tuple(
        Rendition(
            RenditionName(each["name"]),
            file,
            str(each["mime_type"]),
            int(each["width"]),
            int(each["height"]),
        )
        for each, file in zip(fields.pop("renditions"), files[1:], strict=True)
    )
    if len({each.name for each in renditions}) < len(renditions):
        raise ValueError("two renditions have the same name")
    return ConvertedImage(data=files[0], renditions=renditions, **fields)
