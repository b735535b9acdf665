"""Who made a photo, as the terms of its provider ask pages to say it."""

from markupsafe import Markup

from integrations.stock_photos.found_photos import FoundPhoto, PhotoCredit


def credit_line(credit: PhotoCredit) -> Markup:
    """As markup, for our page and for the page of the person who uses the photo."""
    title = Markup("“{}”").format(credit.title) if credit.title else Markup("Photo")
    line = _linked(title, credit.title_url) + " by " + _linked(credit.author, credit.author_url)
    if credit.provider:
        line += " on " + _linked(credit.provider, credit.provider_url)
    if credit.licence:
        line += ", " + _linked(credit.licence, credit.licence_url)
    return line


def figure_markup(photo: FoundPhoto, url: str) -> str:
    """The HTML that shows the photo elsewhere, with its credit."""
    size = Markup(' width="{}" height="{}"').format(photo.width, photo.height)
    sides = size if photo.width and photo.height else ""
    image = Markup('<img src="{}" alt="{}"{}>').format(url, photo.shows, sides)
    credit = credit_line(photo.credit)
    return f"<figure>{image}<figcaption>{credit}</figcaption></figure>"


def _linked(text: str, url: str | None) -> Markup:
    if url is None:
        return Markup("{}").format(text)
    return Markup('<a href="{}">{}</a>').format(url, text)
