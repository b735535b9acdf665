"""Converts an uploaded image into the formats that Pressroom serves, in a child process."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from io import BytesIO

from PIL import Image

from core.errors.media import IMAGE_EMPTY, IMAGE_OUT_OF_MEMORY, IMAGE_UNSUPPORTED_TYPE
from services.attachments.images import containers, encoding, outcome, png, still
from services.attachments.images.animation import Animation, Disposal, Frame, Playback, first_view
from services.attachments.images.outcome import ConvertedImage, ImageType, Rendition, RenditionName

# No rendition is wider than its image. Renditions for pages are WebP, animated for an animation.
# The one for mails is a JPEG, or a PNG where parts are transparent, of the first view: some mail
# programs show no WebP.

_WEBP = "image/webp"
_WIDTHS = {320: RenditionName.NARROW, 640: RenditionName.MEDIUM, 1280: RenditionName.WIDE}
_MAX_MAIL_WIDTH = 1280
_MAIL_QUALITY = 85


def _narrower_than(width: int) -> Sequence[int]:
    return [each for each in _WIDTHS if each < width]


def _for_mail(image: Image.Image) -> Rendition:
    is_opaque = image.mode == "RGB" or image.getchannel("A").getextrema() == (255, 255)
    plain = image.convert("RGB" if is_opaque else "RGBA")
    # The encoders would write what they know of it, such as a comment.
    plain.info.clear()
    out, format_name = BytesIO(), "JPEG" if is_opaque else "PNG"
    # An encoder leaves alone what another one is told.
    plain.save(out, format_name, quality=_MAIL_QUALITY)
    mime_type = f"image/{format_name.lower()}"
    return Rendition(RenditionName.MAIL, out.getvalue(), mime_type, *image.size)


# Pillow's messages may hold ``<_io.BytesIO object at 0x7f…>``.
_OBJECT = re.compile(r" ?<[^<>]+ at 0x[0-9a-fA-F]+>")


def convert(data: bytes, *, with_renditions: bool = False) -> ConvertedImage:
    """Convert an image to the form in which we store it; raises UnreadableImage.

    The result depends on the bytes alone: equal uploads give equal images and renditions.
    """
    if not data:
        raise outcome.refused(IMAGE_EMPTY)
    kind = outcome.sniff_image_type(data)
    if kind is None:
        raise outcome.refused(IMAGE_UNSUPPORTED_TYPE)
    try:
        decoded = _read(kind, data)
        converted = decoded.encoded()
        made = decoded.renditions() if with_renditions else ()
    except MemoryError as error:
        raise outcome.refused(IMAGE_OUT_OF_MEMORY) from error
    except still.DECODER_ERRORS as error:
        text = _OBJECT.sub("", str(error))
        if text.startswith(("encoding error 1", "encoding error 2")):
            raise outcome.refused(IMAGE_OUT_OF_MEMORY) from error
        if "truncated" in text.lower():
            raise outcome.truncated(
                f"The {kind.name} stops before its pixels do: {text}"
            ) from error
        told = f"The {kind.name} could not be decoded: {text or type(error).__name__}"
        raise outcome.unreadable(told) from error
    return replace(converted, renditions=made)


@dataclass(frozen=True, slots=True)
class _Still:
    """A picture that stands upright, in RGB or RGBA."""

    image: Image.Image
    lossless: bool

    def encoded(self) -> ConvertedImage:
        return encoding.encode_still(self.image, lossless=self.lossless)

    def renditions(self) -> tuple[Rendition, ...]:
        smaller = self.image
        made = list[Rendition]()
        for_mail = self.image
        for width in reversed(_narrower_than(self.image.width)):
            # Each is made of the one before, which costs a fraction of making it of the image.
            smaller = still.narrowed(smaller, still.narrowed_size(smaller.size, width))
            made.insert(
                0, Rendition(_WIDTHS[width], encoding.lossy_webp(smaller), _WEBP, *smaller.size)
            )
            if width == _MAX_MAIL_WIDTH:
                for_mail = smaller
        return (*made, _for_mail(for_mail))


class _Icon(_Still):
    def encoded(self) -> ConvertedImage:
        return encoding.encode_icon(self.image)


@dataclass(frozen=True, slots=True)
class _Moving:
    animation: Animation
    lossless: bool

    def encoded(self) -> ConvertedImage:
        return encoding.encode_animation(self.animation, lossless=self.lossless)

    def renditions(self) -> tuple[Rendition, ...]:
        made = list[Rendition]()
        for width in _narrower_than(self.animation.width):
            canvas = Playback(self.animation, width)
            data = encoding.animated_webp(canvas, self.animation.plays, lossless=False)
            made.append(Rendition(_WIDTHS[width], data, _WEBP, *canvas.size))
        first = Playback(self.animation, min(self.animation.width, _MAX_MAIL_WIDTH))
        return (*made, _for_mail(first))


def _read(kind: ImageType, data: bytes) -> _Still | _Moving:
    match kind:
        case ImageType.JPEG:
            picture = containers.read_jpeg(data)
            return _Still(still.decode_upright(picture, "JPEG"), lossless=False)
        case ImageType.PNG:
            return _of_frames(png.read(data), outcome.MAX_LOSSLESS_PIXELS)
        case ImageType.GIF:
            return _of_frames(containers.read_gif(data), outcome.MAX_PIXELS)
        case ImageType.WEBP:
            return _read_webp(data)
        case ImageType.ICO:
            return _Icon(containers.decode_best(data), lossless=True)


def _of_frames(animation: Animation, max_lossless_pixels: int) -> _Still | _Moving:
    area = animation.width * animation.height
    if len(animation.frames) == 1:
        image = still.upright(first_view(animation), animation.orientation)
        return _Still(image, lossless=area <= max_lossless_pixels)
    drawn = area * len(animation.frames)
    return _Moving(animation, lossless=drawn <= outcome.MAX_LOSSLESS_ANIMATION_PIXELS)


def _read_webp(data: bytes) -> _Still | _Moving:
    found = containers.read_webp(data)
    area = found.width * found.height
    if len(found.durations) <= 1:
        lossless = found.lossless and area <= outcome.MAX_LOSSLESS_PIXELS
        return _Still(still.decode_upright(found, "WEBP"), lossless=lossless)
    image = still.open_only(found.data, "WEBP")
    image.info.update(found.metadata)

    def frame(number: int) -> Image.Image:
        image.seek(number)
        image.load()
        # A copy: colours are converted in place, and the decoder draws its next frame over it.
        return still.displayable(image.copy())

    frames = [
        Frame(0, 0, Fraction(ms), Disposal.KEEP, over=False, decode=partial(frame, number))
        for number, ms in enumerate(found.durations)
    ]
    animation = Animation(found.width, found.height, frames, found.plays)
    lossless = found.lossless and area * len(frames) <= outcome.MAX_LOSSLESS_ANIMATION_PIXELS
    return _Moving(animation, lossless=lossless)
