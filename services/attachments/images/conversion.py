"""Converts an uploaded image into the formats that Pressroom serves.

Renditions for web pages are WebP images, which may be animated. Some mail programs can't display
WebP, so the rendition for mails is a still JPEG, or a still PNG if the image is partly transparent.
The thumbnail is a small still WebP, so that a page can show many images quickly. A rendition is
never wider than the uploaded image.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from io import BytesIO

from PIL import Image

from core.errors.media import IMAGE_EMPTY, IMAGE_OUT_OF_MEMORY, IMAGE_UNSUPPORTED_TYPE
from services.attachments.images import encoding, gif, icon, jpeg, outcome, png, still, webp
from services.attachments.images.animation import (
    Animation,
    Disposal,
    Frame,
    Playback,
    render_first_view,
)
from services.attachments.images.outcome import ConvertedImage, ImageType, Rendition, RenditionName

_WEBP_MIME_TYPE = "image/webp"
# Maps the width of each web rendition in pixels to its name.
_RENDITION_WIDTHS = {320: RenditionName.NARROW, 640: RenditionName.MEDIUM, 1280: RenditionName.WIDE}
_MAX_MAIL_WIDTH = 1280
_MAIL_QUALITY = 85
MAX_THUMBNAIL_SIZE = (320, 240)
MAX_THUMBNAIL_BYTES = 40_000
# The WebP qualities for thumbnails. A lower quality is used only if the thumbnail is too large.
_THUMBNAIL_QUALITIES = (80, 50, 20)
# Matches the Python objects in Pillow's error messages, such as ``<_io.BytesIO object at 0x7f…>``.
_OBJECT_PATTERN = re.compile(r" ?<[^<>]+ at 0x[0-9a-fA-F]+>")


def convert_image(data: bytes, *, with_renditions: bool = False) -> ConvertedImage:
    """Convert an uploaded image deterministically, always with a thumbnail."""
    with _refuse_unreadable(data) as kind:
        source = _read_source(kind, data)
        image = source.encode()
        renditions = source.create_renditions() if with_renditions else ()
        return replace(image, renditions=(source.create_thumbnail(), *renditions))


def create_thumbnail(data: bytes) -> Rendition:
    with _refuse_unreadable(data) as kind:
        return _read_source(kind, data).create_thumbnail()


@contextmanager
def _refuse_unreadable(data: bytes) -> Iterator[ImageType]:
    if not data:
        raise outcome.create_refusal(IMAGE_EMPTY)
    kind = outcome.sniff_image_type(data)
    if kind is None:
        raise outcome.create_refusal(IMAGE_UNSUPPORTED_TYPE)
    try:
        yield kind
    except MemoryError as error:
        raise outcome.create_refusal(IMAGE_OUT_OF_MEMORY) from error
    except still.DECODER_ERRORS as error:
        text = _OBJECT_PATTERN.sub("", str(error))
        if text.startswith(("encoding error 1", "encoding error 2")):
            raise outcome.create_refusal(IMAGE_OUT_OF_MEMORY) from error
        if "truncated" in text.lower():
            raise outcome.create_truncated_error(
                f"The {kind.name} ends before all pixels are complete: {text}"
            ) from error
        reason = f"The {kind.name} could not be decoded: {text or type(error).__name__}"
        raise outcome.create_unreadable_error(reason) from error


@dataclass(frozen=True, slots=True)
class _StillSource:
    image: Image.Image
    lossless: bool

    def encode(self) -> ConvertedImage:
        return encoding.encode_still(self.image, lossless=self.lossless)

    def create_thumbnail(self) -> Rendition:
        return _create_thumbnail(self.image)

    def create_renditions(self) -> tuple[Rendition, ...]:
        smaller = self.image
        renditions = list[Rendition]()
        mail_image = self.image
        for width in reversed(_list_narrower_widths(self.image.width)):
            # Scale each rendition from the next larger one, because scaling the original image
            # would be much slower.
            smaller = still.resize_image(smaller, still.scale_size(smaller.size, width))
            data = encoding.encode_lossy_webp(smaller)
            rendition = Rendition(_RENDITION_WIDTHS[width], data, _WEBP_MIME_TYPE, *smaller.size)
            renditions.insert(0, rendition)
            if width == _MAX_MAIL_WIDTH:
                mail_image = smaller
        return (*renditions, _create_mail_rendition(mail_image))


class _IconSource(_StillSource):
    def encode(self) -> ConvertedImage:
        return encoding.encode_icon(self.image)


@dataclass(frozen=True, slots=True)
class _AnimationSource:
    animation: Animation
    lossless: bool

    def encode(self) -> ConvertedImage:
        return encoding.encode_animation(self.animation, lossless=self.lossless)

    def create_thumbnail(self) -> Rendition:
        return _create_thumbnail(render_first_view(self.animation))

    def create_renditions(self) -> tuple[Rendition, ...]:
        renditions = list[Rendition]()
        for width in _list_narrower_widths(self.animation.width):
            playback = Playback(self.animation, width)
            data = encoding.encode_animated_webp(playback, self.animation.plays, lossless=False)
            name = _RENDITION_WIDTHS[width]
            renditions.append(Rendition(name, data, _WEBP_MIME_TYPE, *playback.size))
        first_view = Playback(self.animation, min(self.animation.width, _MAX_MAIL_WIDTH))
        return (*renditions, _create_mail_rendition(first_view))


def _read_source(kind: ImageType, data: bytes) -> _StillSource | _AnimationSource:
    match kind:
        case ImageType.JPEG:
            picture = jpeg.read_jpeg(data)
            return _StillSource(still.decode_upright(picture, "JPEG"), lossless=False)
        case ImageType.PNG:
            return _create_source(png.read_png(data), outcome.MAX_LOSSLESS_PIXELS)
        case ImageType.GIF:
            return _create_source(gif.read_gif(data), outcome.MAX_PIXELS)
        case ImageType.WEBP:
            return _read_webp_source(data)
        case ImageType.ICO:
            return _IconSource(icon.decode_best_image(data), lossless=True)


def _create_source(
    animation: Animation, max_lossless_pixels: int
) -> _StillSource | _AnimationSource:
    area = animation.width * animation.height
    if len(animation.frames) == 1:
        image = still.rotate_upright(render_first_view(animation), animation.orientation)
        return _StillSource(image, lossless=area <= max_lossless_pixels)
    drawn_pixels = area * len(animation.frames)
    is_lossless = drawn_pixels <= outcome.MAX_LOSSLESS_ANIMATION_PIXELS
    return _AnimationSource(animation, lossless=is_lossless)


def _read_webp_source(data: bytes) -> _StillSource | _AnimationSource:
    file = webp.read_webp(data)
    area = file.width * file.height
    if len(file.durations) <= 1:
        is_lossless = file.lossless and area <= outcome.MAX_LOSSLESS_PIXELS
        return _StillSource(still.decode_upright(file, "WEBP"), lossless=is_lossless)
    image = still.open_image(file.data, "WEBP")
    image.info.update(file.metadata)

    def decode_frame(number: int) -> Image.Image:
        image.seek(number)
        image.load()
        # Copy the frame, because Pillow reuses its ``Image`` object for the next frame, and the
        # conversion to sRGB may change it.
        return still.convert_to_srgb(image.copy())

    frames = [
        Frame(0, 0, Fraction(ms), Disposal.KEEP, over=False, decode=partial(decode_frame, number))
        for number, ms in enumerate(file.durations)
    ]
    animation = Animation(file.width, file.height, frames, file.plays)
    drawn_pixels = area * len(frames)
    is_lossless = file.lossless and drawn_pixels <= outcome.MAX_LOSSLESS_ANIMATION_PIXELS
    return _AnimationSource(animation, lossless=is_lossless)


def _list_narrower_widths(width: int) -> Sequence[int]:
    return [rendition_width for rendition_width in _RENDITION_WIDTHS if rendition_width < width]


def _create_thumbnail(image: Image.Image) -> Rendition:
    max_width, max_height = MAX_THUMBNAIL_SIZE
    scale = min(1, max_width / image.width, max_height / image.height)
    width = max(1, round(image.width * scale))
    height = max(1, round(image.height * scale))
    small = still.resize_image(image, (width, height))
    data = b""
    for quality in _THUMBNAIL_QUALITIES:
        data = encoding.encode_lossy_webp(small, quality=quality)
        if len(data) <= MAX_THUMBNAIL_BYTES:
            break
    return Rendition(RenditionName.THUMBNAIL, data, _WEBP_MIME_TYPE, *small.size)


def _create_mail_rendition(image: Image.Image) -> Rendition:
    is_opaque = image.mode == "RGB" or image.getchannel("A").getextrema() == (255, 255)
    plain = image.convert("RGB" if is_opaque else "RGBA")
    # Remove metadata such as comments, which Pillow would otherwise write to the file.
    plain.info.clear()
    output = BytesIO()
    format_name = "JPEG" if is_opaque else "PNG"
    # Pillow's PNG encoder ignores the setting ``quality``.
    plain.save(output, format_name, quality=_MAIL_QUALITY)
    mime_type = f"image/{format_name.lower()}"
    return Rendition(RenditionName.MAIL, output.getvalue(), mime_type, *image.size)
