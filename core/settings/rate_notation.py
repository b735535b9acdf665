"""The notation of rate limits: ``10/minute``, ``5 per 2 seconds``, several with ``;`` between.

It is the notation of ``limits``, the library that counts. This module checks it without loading
the library: every command reads the settings, and few commands count.
"""

import re
from typing import Annotated

from pydantic import AfterValidator

_AMOUNT = r"[0-9]+"
_MULTIPLE = r"[1-9][0-9]*"
_UNIT = r"(?:second|minute|hour|day|month|year)s?"
_LIMIT = rf"\s*{_AMOUNT}\s*(?:/|per)\s*(?:{_MULTIPLE}\s*)?{_UNIT}\s*"
_LIMITS = re.compile(rf"{_LIMIT}(?:[,;|]{_LIMIT})*\Z", re.IGNORECASE)


def check_rate_limits(value: str) -> str:
    """Return the limits as they were written, empty for none; raises ``ValueError``."""
    if value.strip() and not _LIMITS.match(value):
        raise ValueError("must be like 600/minute or 10/second;200/hour, or empty for no limit")
    return value.strip()


RateLimits = Annotated[str, AfterValidator(check_rate_limits)]
