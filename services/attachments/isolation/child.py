"""The child process that converts images, one after the other."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from core.process import child_loop
from core.process.confinement import confine_process
from services.attachments.images.conversion import convert
from services.attachments.images.outcome import (
    ConvertedImage,
    Rendition,
    RenditionName,
    UnreadableImage,
)


def answer_parts(outcome: ConvertedImage | UnreadableImage) -> tuple[Any, Sequence[bytes]]:
    """Split a result into JSON fields and image files, without copying the files."""
    fields = asdict(outcome)
    with_data = [each for each in (fields, *fields.get("renditions", ())) if "data" in each]
    files: list[bytes] = [each.pop("data") for each in with_data]
    return {"fields": fields, "sizes": list(map(len, files))}, files


def outcome(answer: Any, data: bytes) -> ConvertedImage | UnreadableImage:
    """Parse the child's answer. Raises ``ValueError`` if an image file is invalid."""
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


# Pillow imports these when an image first needs them, which is too late in a confined process. For
# a format that is missing it imports all of its sixty plugins.
_PLUGINS = ("Bmp", "Gif", "Ico", "Jpeg", "Mpo", "Png", "Ppm", "Tiff", "WebP")
for _plugin in _PLUGINS:
    import_module(f"PIL.{_plugin}ImagePlugin")

_MAX_RESIDENT_BYTES = 192 * 1024 * 1024


def main() -> None:
    child_loop.answer_messages(
        _answer, confine=confine_process, max_resident_bytes=_MAX_RESIDENT_BYTES
    )


def _answer(request: Any, image: bytes) -> tuple[Any, Sequence[bytes]]:
    try:
        return answer_parts(convert(image, with_renditions=request["with_renditions"]))
    except UnreadableImage as error:
        return answer_parts(error)


if __name__ == "__main__":
    main()
