"""Compares the duration of an image upload with the duration of converting the same image."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import httpx2
from PIL import Image, ImageDraw

from benchmarks.measure import Finding, TimeLimit, alternate, is_full_size, measure_seconds
from benchmarks.running_stack import running_stack
from services.attachments.images.conversion import convert_image

UPLOAD_LIMIT = TimeLimit(factor=1.15, allowance_ms=15)


def run() -> list[Finding]:
    pictures = (
        _Picture("upload: 12 MP JPEG", "photo.jpg", create_photo),
        _Picture("upload: 2 MP PNG", "drawing.png", _create_drawing),
        _Picture("upload: 50-frame GIF", "loop.gif", _create_animation),
        _Picture("upload: 12 MP JPEG, renditions", "photo.jpg", create_photo, renditions=True),
        _Picture("upload: 2 MP PNG, renditions", "drawing.png", _create_drawing, renditions=True),
        _Picture(
            "upload: 50-frame GIF, renditions", "loop.gif", _create_animation, renditions=True
        ),
    )
    with running_stack() as stack:
        headers = {"Authorization": f"Bearer {stack['demo']['api_key']}"}
        with httpx2.Client(base_url=stack["api_url"], headers=headers, timeout=60) as client:
            return [_compare(client, picture) for picture in pictures]


@dataclass(frozen=True)
class _Picture:
    name: str
    filename: str
    make: Callable[[], bytes]
    renditions: bool = False


def _compare(client: httpx2.Client, picture: _Picture) -> Finding:
    data = picture.make()
    renditions = picture.renditions

    def product() -> float:
        return measure_seconds(
            partial(_upload, client, picture.filename, data, renditions=renditions)
        )

    def baseline() -> float:
        return measure_seconds(partial(convert_image, data, with_renditions=renditions))

    pairs = alternate(product, baseline, rounds=15 if is_full_size() else 7)
    return UPLOAD_LIMIT.build_finding(picture.name, pairs, upload_bytes=len(data))


def _upload(client: httpx2.Client, filename: str, data: bytes, *, renditions: bool) -> None:
    params = {"renditions": str(int(renditions))}
    reply = client.post("/attachments", files={"file": (filename, data)}, params=params)
    assert reply.status_code == httpx2.codes.OK, reply.text


def _encode(picture: Image.Image, file_format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, file_format, **options)
    return buffer.getvalue()


def _draw_scene(width: int, height: int, noise: float = 12.0) -> Image.Image:
    return Image.merge(
        "RGB",
        [
            Image.linear_gradient("L").resize((width, height)),
            Image.radial_gradient("L").resize((width, height)),
            Image.effect_noise((width, height), noise),
        ],
    )


def create_photo() -> bytes:
    return _encode(_draw_scene(4000, 3000), "JPEG", quality=82)


def _create_drawing() -> bytes:
    """Return a PNG with 2 megapixels that resembles a slide or a screenshot.

    The generated picture contains gradients, shapes, thin lines and a photograph.
    """
    picture = _draw_scene(1600, 1250, noise=0.0)
    draw = ImageDraw.Draw(picture)
    for step in range(60):
        corner = (step * 53 % 1500, step * 97 % 1150)
        colour = (step * 37 % 256, step * 91 % 256, step * 11 % 256)
        draw.rectangle((*corner, corner[0] + 90, corner[1] + 60), fill=colour)
        draw.line((0, step * 21, 1600, step * 13), fill=colour, width=2)
        draw.text(corner, f"Figure {step}: readers by month", fill="black")
    picture.paste(_draw_scene(500, 375), (1050, 820))
    return _encode(picture, "PNG")


def _create_animation() -> bytes:
    first = _draw_scene(480, 360, noise=1.0).quantize(64)
    frames = [first.rotate(3 * turn) for turn in range(1, 50)]
    return _encode(first, "GIF", save_all=True, append_images=frames, duration=40, loop=0)
