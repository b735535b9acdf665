"""Finds the documentation to which the development stack links."""

import os
from pathlib import Path

# The overview page of the documentation in a checkout. The wheel contains no documentation.
_OVERVIEW_PAGE = Path(__file__).parents[1] / "docs" / "README.md"


def find_documentation() -> str | None:
    """Return ``None`` outside a checkout if the setting ``PRESSROOM_DOCS_URL`` is empty."""
    url = os.environ.get("PRESSROOM_DOCS_URL")
    if url:
        return url
    return str(_OVERVIEW_PAGE) if _OVERVIEW_PAGE.exists() else None
