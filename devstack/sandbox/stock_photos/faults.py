"""Faults of a photo provider, each named by a word in a search or in a photo's id.

`slow-N` gives the usual answer after N seconds.
"""

import asyncio
import re
from collections.abc import Callable, Mapping

from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

_HUGE_BYTES = 6 * 1024 * 1024
_SLOW = re.compile(r"\bslow-(\d{1,2})\b")

# Each makes its answer with the headers of a quota that is spent.
Faults = Mapping[str, Callable[[dict[str, str]], Response]]

FAULTS: Faults = {
    "limit-403": lambda spent: PlainTextResponse("Rate Limit Exceeded", 403, headers=spent),
    "limit-429": lambda spent: JSONResponse(
        {"detail": "throttled"}, 429, {**spent, "Retry-After": "120"}
    ),
    "error-500": lambda _: PlainTextResponse("Internal Server Error", 500),
    "garbage": lambda _: PlainTextResponse("<!doctype html><title>Just a moment</title>"),
    "huge": lambda _: JSONResponse({"results": ["x" * _HUGE_BYTES]}),
    "redirect": lambda _: RedirectResponse("/healthz", 302),
}


async def fault(text: str, faults: Faults, spent: dict[str, str]) -> Response | None:
    """The faulty answer that a word of the text asks for, or None for the usual answer."""
    if slow := _SLOW.search(text):
        await asyncio.sleep(int(slow[1]))
    named = next((name for name in faults if re.search(rf"\b{name}\b", text)), None)
    return faults[named](spent) if named else None
