"""An image as pages show it: a small rendition of it, and what its owner pastes elsewhere."""

import html
from dataclasses import dataclass
from datetime import datetime

from api.console.console_display import counted
from api.schemas.attachments import AttachmentRecord
from api.state import State
from core import clock
from core.errors import DomainError
from core.refusals.media import SIGNED_LINK_EXPIRES_IN
from models import Attachment, AttachmentStatus
from services.media.attachments import signed_links

_SMALL, _MAIL = "320", "mail"
# For how long a signed link may be, by what the form has.
LINK_LIFETIMES = {"3600": "An hour", "86400": "A day", "604800": "A week"}


@dataclass(frozen=True)
class ShownFile:
    """One file of an image, with what shows it elsewhere."""

    label: str
    url: str
    width: int | None
    height: int | None
    size: int
    alt: str

    @property
    def tag(self) -> str:
        """For HTML."""
        sides = "" if self.width is None else f' width="{self.width}" height="{self.height}"'
        return f'<img src="{html.escape(self.url)}" alt="{html.escape(self.alt)}"{sides}>'

    @property
    def markdown(self) -> str:
        escaped = self.alt.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
        return f"![{' '.join(escaped.split())}]({self.url})"


@dataclass(frozen=True)
class ShownImage:
    record: AttachmentRecord

    @property
    def name(self) -> str:
        return self.record.title or self.record.original_filename

    @property
    def is_ready(self) -> bool:
        return self.record.status == AttachmentStatus.READY

    @property
    def reason(self) -> str | None:
        error = self.record.error
        return None if error is None else str(error["message"])

    @property
    def alt(self) -> str:
        """What stands for the image on pages of ours, where it must have a name."""
        return self.record.alt_text or self.name

    @property
    def small(self) -> ShownFile:
        """The smallest file that pages show; the image itself, where it has no renditions."""
        return next((each for each in self.files if each.label == _SMALL), self.files[0])

    @property
    def files(self) -> list[ShownFile]:
        """The image, its renditions for pages, and the one for mails."""
        record, alt = self.record, self.record.alt_text or ""
        whole = ShownFile("", record.view_url, record.width, record.height, record.size, alt)
        return [
            whole,
            *(
                ShownFile(each.name, each.view_url, each.width, each.height, each.size, alt)
                for each in record.renditions
            ),
        ]

    @property
    def labelled(self) -> list[tuple[str, ShownFile]]:
        """The files with words for them."""
        return [(_words(each), each) for each in self.files]


def _words(file: ShownFile) -> str:
    if not file.label:
        return "The image"
    return "For mails" if file.label == _MAIL else f"{counted(int(file.label), 'pixel')} wide"


def shown_image(state: State, attachment: Attachment) -> ShownImage:
    return ShownImage(AttachmentRecord.of(attachment, state.resources.settings))


def signed_link(state: State, attachment: Attachment, lasts: str) -> tuple[str, datetime]:
    """The URL by which anyone sees an encrypted image until then. Raises ``link.…``."""
    if lasts not in LINK_LIFETIMES:
        raise SIGNED_LINK_EXPIRES_IN(longest=max(map(int, LINK_LIFETIMES)))
    return signed_links.create(
        state.resources.keyring,
        attachment,
        attachment.filename,
        base=state.resources.settings.public_base,
        expires_in=int(lasts),
        now=clock.now(),
    )


def media_sources(state: State) -> dict[str, str]:
    """Where the images of a page come from, for its policy."""
    base = state.resources.settings.media_base
    scheme, _, rest = base.partition("://")
    return {"img-src": f"{scheme}://{rest.partition('/')[0]}"}


def is_one_of_the_file(error: DomainError) -> bool:
    """Whether a refusal is about the file that was sent."""
    return error.code.startswith(("attachment.", "image."))
