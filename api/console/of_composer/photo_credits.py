"""Who made a photo, as the terms of its provider ask pages to say it."""

from dataclasses import dataclass
from html import escape

from integrations.stock_photos.found_photos import FoundPhoto, PhotoCredit


@dataclass(frozen=True)
class CreditLine:
    """For our page, and for the page of the person who uses the photo."""

    credit: PhotoCredit

    def __html__(self) -> str:
        # Each text and URL of the provider is escaped here, so a template need not.
        credit = self.credit
        title = f"“{credit.title}”" if credit.title else "Photo"
        author = _linked(credit.author, credit.author_url)
        line = f"{_linked(title, credit.title_url)} by {author}"
        if credit.provider:
            line += f" on {_linked(credit.provider, credit.provider_url)}"
        if credit.licence:
            line += f", {_linked(credit.licence, credit.licence_url)}"
        return line


def figure_markup(photo: FoundPhoto, url: str) -> str:
    """The HTML that shows the photo elsewhere, with its credit."""
    has_size = photo.width and photo.height
    size = f' width="{photo.width}" height="{photo.height}"' if has_size else ""
    image = f'<img src="{escape(url)}" alt="{escape(photo.shows)}"{size}>'
    credit = CreditLine(photo.credit).__html__()
    return f"<figure>{image}<figcaption>{credit}</figcaption></figure>"


def _linked(text: str, url: str | None) -> str:
    return escape(text) if url is None else f'<a href="{escape(url)}">{escape(text)}</a>'
