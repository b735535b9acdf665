"""The moments that the cells of files name."""

from datetime import UTC, datetime
from functools import lru_cache

from services.mailing.imports.mapping import header_words
from services.mailing.spreadsheets import bare_cell

_OTHER_FORMS = (
    *("%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%b %d, %Y", "%d %b %Y", "%B %d, %Y", "%d %B %Y"),
    *("%b %d, %Y %I:%M %p", "%Y-%m-%d %H:%M:%S %z"),
)


def read_moment(cell: str) -> datetime | None:
    """A time with its zone, UTC if it names none; ``None`` for a cell that says no.

    Raises ``ValueError``, whose text names the cell.
    """
    text = bare_cell(cell).strip()
    if header_words.is_no(text):
        return None
    found = _moment(text) if len(text) <= header_words.MAX_WORD_CHARACTERS else None
    if found is None:
        raise ValueError(f"{text[:60]!r} is no date that can be read.")
    return found


@lru_cache(1024)
def _moment(text: str) -> datetime | None:
    text = text.removesuffix(" UTC")
    for form in (None, *_OTHER_FORMS):
        try:
            # A time without a zone gets one below, whatever its form.
            found = datetime.strptime(text, form) if form else datetime.fromisoformat(text)  # noqa: DTZ007
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            continue
    # Seconds or milliseconds since 1970, as programs write them: from 2001 on.
    if len(text) in (10, 13) and text.isascii() and text.isdecimal():
        return datetime.fromtimestamp(int(text[:10]), UTC)
    return None
