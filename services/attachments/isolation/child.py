"""The main program of the child process that converts images."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from core.process import child_loop
from core.process.confinement import confine_process
from core.process.linux import keep_freed_memory
from services.attachments.images.conversion import convert_image, create_thumbnail
from services.attachments.images.outcome import (
    ConvertedImage,
    Rendition,
    RenditionName,
    UnreadableImage,
)

# Import Pillow's plugins for the supported image formats in advance, because the confined process
# can't import them later.
_PLUGINS = ("Bmp", "Gif", "Ico", "Jpeg", "Mpo", "Png", "Ppm", "Tiff", "WebP")
for _plugin in _PLUGINS:
    import_module(f"PIL.{_plugin}ImagePlugin")

_MAX_RESIDENT_BYTES = 192 * 1024 * 1024


def split_result(
    result: ConvertedImage | Rendition | UnreadableImage,
) -> tuple[Any, Sequence[bytes]]:
    """Split the result into JSON fields and files. To save memory, the files aren't copied."""
    fields = asdict(result)
    images = [image for image in (fields, *fields.get("renditions", ())) if "data" in image]
    files: list[bytes] = [image.pop("data") for image in images]
    return {"fields": fields, "sizes": list(map(len, files))}, files


def parse_answer(answer: Any, data: bytes) -> ConvertedImage | Rendition | UnreadableImage:
    """Parse the answer of the child process. Raises ``ValueError`` if the answer is invalid."""
    fields = answer["fields"]
    if "code" in fields:
        return UnreadableImage(**fields)
    files = list[bytes]()
    rest = memoryview(data)
    for size in answer["sizes"]:
        files.append(bytes(rest[:size]))
        rest = rest[size:]
    if "name" in fields:
        return _parse_rendition(fields, files[0])
    renditions = tuple(
        _parse_rendition(rendition, file)
        for rendition, file in zip(fields.pop("renditions"), files[1:], strict=True)
    )
    if len({rendition.name for rendition in renditions}) < len(renditions):
        raise ValueError("two renditions have the same name")
    return ConvertedImage(data=files[0], renditions=renditions, **fields)


def _parse_rendition(fields: Any, data: bytes) -> Rendition:
    return Rendition(
        RenditionName(fields["name"]),
        data,
        str(fields["mime_type"]),
        int(fields["width"]),
        int(fields["height"]),
    )


def main() -> None:
    # Optimization: freed memory that the image converter keeps (decision 17).
    keep_freed_memory()
    child_loop.answer_messages(
        _answer, confine=confine_process, max_resident_bytes=_MAX_RESIDENT_BYTES
    )


def _answer(request: Any, image: bytes) -> tuple[Any, Sequence[bytes]]:
    try:
        if "with_renditions" not in request:
            return split_result(create_thumbnail(image))
        return split_result(convert_image(image, with_renditions=request["with_renditions"]))
    except UnreadableImage as error:
        return split_result(error)


if __name__ == "__main__":
    main()
