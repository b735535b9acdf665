"""Warns about parameters and fields that the API ignored, because they may be misspelt."""

import sys
import warnings

import httpx2

_HEADER = "pressroom-ignored"
# The maximum number of names that a client remembers, because a program may compute the names.
_MAX_NAMES = 1_000


class IgnoredNameWarning(UserWarning):
    """Warns about parameters or fields that the API ignored, because it doesn't know them."""


class IgnoredNames:
    """The names in a client's earlier warnings, so that each name causes only one warning."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def warn(self, operation: str, response: httpx2.Response) -> None:
        """Warn about the names that a response lists, once for each name of an operation."""
        listed_names = response.headers.get(_HEADER, "").split(", ")
        names = {name: f"{operation} {name}" for name in listed_names if name}
        new_names = [name for name, key in names.items() if key not in self._known]
        if not new_names or len(self._known) >= _MAX_NAMES:
            return
        self._known.update(names.values())
        message = (
            f"The API ignored {', '.join(new_names)} in {operation}. Pass strict=True to the"
            " client, so that unknown names raise an error."
        )
        warnings.warn(message, IgnoredNameWarning, stacklevel=_count_own_frames())


def _count_own_frames() -> int:
    """Return the ``stacklevel`` at which the caller of this package appears in a warning."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(f"{__package__}."):
        frame = frame.f_back
        level += 1
    return level
