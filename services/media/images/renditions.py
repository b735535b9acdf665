"""The renditions of an image: smaller ones for pages that name several widths, and one for mails.

No rendition is wider than its image. Those for pages are WebP, and of an animation they are
animated. The one for mails is a JPEG, or a PNG where parts are transparent, of the first view:
there are mail programs that show no WebP.
"""

from collections.abc import Sequence
from io import BytesIO

from PIL import Image

from services.media.images.animation import Animation, Playback
from services.media.images.encoding import animated_webp, lossy_webp
from services.media.images.outcome import Rendition, RenditionName
from services.media.images.still import narrowed, narrowed_size

_WEBP = "image/webp"
_WIDTHS = {320: RenditionName.NARROW, 640: RenditionName.MEDIUM, 1280: RenditionName.WIDE}
_MAX_MAIL_WIDTH = 1280
_MAIL_QUALITY = 85


def of_still(image: Image.Image) -> tuple[Rendition, ...]:
    """Return the renditions of an RGB or RGBA image that stands upright, the narrowest first."""
    smaller = image
    made = list[Rendition]()
    for_mail = image
    for width in reversed(_narrower_than(image.width)):
        # Each is made of the one before, which costs a fraction of making it of the image.
        smaller = narrowed(smaller, narrowed_size(smaller.size, width))
        made.insert(0, Rendition(_WIDTHS[width], lossy_webp(smaller), _WEBP, *smaller.size))
        if width == _MAX_MAIL_WIDTH:
            for_mail = smaller
    return (*made, _for_mail(for_mail))


def of_animation(animation: Animation) -> tuple[Rendition, ...]:
    made = list[Rendition]()
    for width in _narrower_than(animation.width):
        canvas = Playback(animation, width)
        data = animated_webp(canvas, animation.plays, lossless=False)
        made.append(Rendition(_WIDTHS[width], data, _WEBP, *canvas.size))
    first = Playback(animation, min(animation.width, _MAX_MAIL_WIDTH))
    return (*made, _for_mail(first))


def _narrower_than(width: int) -> Sequence[int]:
    return [each for each in _WIDTHS if each < width]


def _for_mail(image: Image.Image) -> Rendition:
    is_opaque = image.mode == "RGB" or image.getchannel("A").getextrema() == (255, 255)
    plain = image.convert("RGB" if is_opaque else "RGBA")
    # The encoders would write what they know of it, such as a comment.
    plain.info.clear()
    out = BytesIO()
    if is_opaque:
        plain.save(out, "JPEG", quality=_MAIL_QUALITY)
    else:
        plain.save(out, "PNG")
    mime_type = "image/jpeg" if is_opaque else "image/png"
    return Rendition(RenditionName.MAIL, out.getvalue(), mime_type, *image.size)
