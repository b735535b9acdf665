"""Writes docs/before-and-after.md, which shows uploaded pictures next to their stored versions.

`python -m benchmarks.attachments_page` needs a stack that was started with `make run` in
PRESSROOM_HOME.
"""

import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from PIL import ExifTags, Image, ImageDraw

from services.attachments.images import webp

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "attachments"
# An unescaped vertical bar would end the cell of a Markdown table.
_ESCAPED_BAR = r"\|"
# The EXIF orientation for a picture that must be rotated clockwise by 90 degrees.
_SIDEWAYS = 6


@dataclass(frozen=True)
class Sample:
    name: str
    filename: str
    data: bytes
    note: str


def main() -> int:
    home = Path(os.environ.get("PRESSROOM_HOME") or ".pressroom")
    try:
        run: dict[str, Any] = json.loads((home / "run.json").read_text())
    except FileNotFoundError:
        print(f"Nothing runs in {home.resolve()}: start it with `make run`.")
        return 1
    headers = {"Authorization": f"Bearer {run['demo']['api_key']}", "Prefer": "wait=60"}
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    with httpx2.Client(base_url=run["api_url"], headers=headers, timeout=60) as client:
        rows = [_build_row(client, sample) for sample in _create_samples()]
    (DOCS / "before-and-after.md").write_text(_build_page(rows))
    print(f"{sum(file.stat().st_size for file in FOLDER.iterdir()):,} bytes of pictures.")
    return 0


# -- what is sent --------------------------------------------------------------------------------


def _create_samples() -> Iterator[Sample]:
    scene = _draw_scene(320, 240)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = _SIDEWAYS
    sideways = scene.transpose(Image.Transpose.ROTATE_90)
    photo = _encode(sideways, "JPEG", quality=92, exif=exif)
    yield Sample("JPEG", "photo.jpg", photo, "rotated by its EXIF data")
    badge = _encode(_draw_badge(240), "PNG")
    yield Sample("PNG", "badge.png", badge, "transparent background")
    turning = [_draw_badge(160, angle) for angle in range(0, 360, 30)]
    moving = _encode_animation(turning, "PNG", duration=80, loop=0, disposal=1)
    yield Sample("APNG", "turning.png", moving, "twelve transparent frames in an endless loop")
    counting = [_draw_number(digit) for digit in (3, 2, 1, 0)]
    countdown = _encode_animation(counting, "GIF", duration=[700, 700, 700, 2000], loop=2)
    yield Sample("GIF", "countdown.gif", countdown, "plays three times with a longer last frame")
    still = _encode(scene, "WEBP", quality=95)
    yield Sample("WebP", "scene.webp", still, "a lossy image")
    icon = _encode(_draw_badge(64), "ICO", sizes=[(16, 16), (32, 32), (64, 64)])
    yield Sample("ICO", "icon.ico", icon, "widths of 16, 32 and 64 pixels")


def _encode(picture: Image.Image, file_format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, file_format, **options)
    return buffer.getvalue()


def _encode_animation(frames: list[Image.Image], file_format: str, **options: object) -> bytes:
    return _encode(frames[0], file_format, save_all=True, append_images=frames[1:], **options)


def _draw_scene(width: int, height: int) -> Image.Image:
    fractal = Image.effect_mandelbrot((width, height), (-2.0, -1.2, 0.9, 1.2), 60)
    down = Image.linear_gradient("L").resize((width, height))
    around = Image.radial_gradient("L").resize((width, height))
    scene = Image.merge("RGB", [fractal, down, around])
    ImageDraw.Draw(scene).text((8, 6), "This side up", fill="white", font_size=22)
    return scene


def _draw_badge(side: int, angle: int = 0) -> Image.Image:
    badge = Image.new("RGBA", (side, side))
    draw = ImageDraw.Draw(badge)
    for ring in range(side // 2):
        share = 2 * ring / side
        colour = (int(230 * share), 90, int(200 * (1 - share)) + 40, 255)
        draw.ellipse((ring, ring, side - 1 - ring, side - 1 - ring), fill=colour)
    draw.pieslice((0, 0, side - 1, side - 1), angle, angle + 60, fill=(255, 220, 60, 150))
    return badge


def _draw_number(digit: int) -> Image.Image:
    frame = Image.new("RGB", (160, 160), (24, 32, 64))
    draw = ImageDraw.Draw(frame)
    draw.ellipse((10, 10, 150, 150), outline=(255, 220, 60), width=6)
    draw.text((80, 78), str(digit), fill="white", anchor="mm", font_size=90)
    return frame


# -- what comes back -----------------------------------------------------------------------------


def _build_row(client: httpx2.Client, sample: Sample) -> dict[str, str]:
    record = _upload(client, sample)
    # Fetch the stored picture without credentials, as a mail client does.
    stored = httpx2.get(record["view_url"], timeout=60).raise_for_status()
    result = f"{sample.filename.partition('.')[0]}.stored.{_extension(record['filename'])}"
    (FOLDER / sample.filename).write_bytes(sample.data)
    (FOLDER / result).write_bytes(stored.content)
    with Image.open(io.BytesIO(sample.data)) as source:
        (width, height), frames = source.size, getattr(source, "n_frames", 1)
    mime_type, stored_type = record["original_mime_type"], stored.headers["Content-Type"]
    return {
        "name": sample.name,
        "note": sample.note,
        "sent": f"![{sample.filename}](attachments/{sample.filename})",
        "stored": f"![{result}](attachments/{result})",
        "sent_facts": _format_facts(mime_type, width, height, len(sample.data)),
        "stored_facts": _format_facts(
            stored_type, record["width"], record["height"], record["size"]
        ),
        "frames": f"{frames} → {record['frames']}",
        "plays": _format_plays(stored.content) if record["frames"] > 1 else "",
        "blurhash": f"`{record['blurhash'].replace('|', _ESCAPED_BAR)}`",
    }


def _upload(client: httpx2.Client, sample: Sample) -> dict[str, Any]:
    reply = client.post("/attachments", files={"file": (sample.filename, sample.data)})
    assert reply.status_code == httpx2.codes.OK, reply.text
    record: dict[str, Any] = reply.json()["data"]
    return record


def _extension(filename: str) -> str:
    return filename.rpartition(".")[2]


def _format_facts(mime_type: str, width: int, height: int, size: int) -> str:
    return f"`{mime_type}`, {width} × {height}, {size:,} bytes"


def _format_plays(data: bytes) -> str:
    return str(webp.read_webp(data).plays or "endless")


# -- the page ------------------------------------------------------------------------------------

_HEAD = """# Attachments, before and after

This page is for everyone who wants to see how Pressroom stores uploaded images.
[Decision 3](decisions/0003-image-encoding.md) explains how each type is encoded, and why.

Don't edit this page. To update the page, run `python -m benchmarks.attachments_page` while
`make run` is running.
"""
_FOOT = """
The size of the sent JPEG is the size before its rotation. Stored images have no EXIF.
"""


def _build_page(rows: list[dict[str, str]]) -> str:
    pictures = [
        f"| **{row['name']}**: {row['note']} | {row['sent']} | {row['stored']} |" for row in rows
    ]
    facts = [
        f"| {row['name']} | {row['sent_facts']} | {row['stored_facts']} | {row['frames']} "
        f"| {row['plays']} | {row['blurhash']} |"
        for row in rows
    ]
    return (
        "\n".join(
            [
                _HEAD,
                "| image | sent | stored |",
                "|---|---|---|",
                *pictures,
                "\n## Data in the records\n",
                "| image | sent | stored | frames | plays | blurhash |",
                "|---|---|---|---|---|---|",
                *facts,
                _FOOT,
            ]
        ).rstrip("\n")
        + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
