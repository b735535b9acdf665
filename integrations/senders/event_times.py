"""Parses the times in the requests of mail providers."""

from datetime import UTC, datetime

# Times outside the years 2000 to 2099 count as invalid. For example, a Unix time of 0 can mean that
# the provider doesn't know the time.
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = datetime(2100, 1, 1, tzinfo=UTC)
_MAX_CHARACTERS = 40
_MAX_UNIX_DIGITS = 11


def parse_iso_time(value: object) -> datetime | None:
    """Return ``None`` for a text without a UTC offset, because its time zone is unknown."""
    if not isinstance(value, str) or len(value) > _MAX_CHARACTERS:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return _check_range(moment.astimezone(UTC)) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def parse_unix_time(value: object, units_per_second: int = 1) -> datetime | None:
    """Return ``None`` if the value is invalid. ``units_per_second`` is 1,000 for milliseconds."""
    if not isinstance(value, int | float):
        return None
    try:
        return _check_range(datetime.fromtimestamp(value / units_per_second, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def parse_unix_text(text: str) -> datetime | None:
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_UNIX_DIGITS:
        return None
    return parse_unix_time(int(text))


def _check_range(moment: datetime) -> datetime | None:
    return moment if _EARLIEST <= moment < _LATEST else None
