"""Builds the HTML that names the authors of photos."""

from dataclasses import dataclass
from html import escape

from integrations.stock_photos.port import FoundPhoto, PhotoCredit


@dataclass(frozen=True)
class CreditLine:
    credit: PhotoCredit

    def __html__(self) -> str:
        # The template inserts the returned HTML unchanged, so escape the provider's texts here.
        credit = self.credit
        title = f"“{credit.title}”" if credit.title else "Photo"
        author = _build_link(credit.author, credit.author_url)
        line = f"{_build_link(title, credit.title_url)} by {author}"
        if credit.provider:
            line += f" on {_build_link(credit.provider, credit.provider_url)}"
        if credit.licence:
            line += f", {_build_link(credit.licence, credit.licence_url)}"
        return line


def build_figure(photo: FoundPhoto, url: str) -> str:
    has_size = photo.width and photo.height
    size = f' width="{photo.width}" height="{photo.height}"' if has_size else ""
    image = f'<img src="{escape(url)}" alt="{escape(photo.shows)}"{size}>'
    credit = CreditLine(photo.credit).__html__()
    return f"<figure>{image}<figcaption>{credit}</figcaption></figure>"


def _build_link(text: str, url: str | None) -> str:
    return escape(text) if url is None else f'<a href="{escape(url)}">{escape(text)}</a>'
