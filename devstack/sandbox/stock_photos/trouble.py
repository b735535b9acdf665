"""What a stand-in does wrong when the words of a search, or the id of a photo, ask for it.

`limit-403` and `limit-429`: the quota is spent; `error-500`; `garbage`: a page that is no JSON;
`list`: JSON that is no object; `huge`: 6 MB; `redirect`; `slow-N`: the usual, after N seconds.
"""

import asyncio
import re
from collections.abc import Callable

from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

_HUGE_BYTES = 6 * 1024 * 1024

# Each is given the headers of an answer when nothing of the quota is left.
_ANSWERS: dict[str, Callable[[dict[str, str]], Response]] = {
    "limit-403": lambda spent: PlainTextResponse("Rate Limit Exceeded", 403, headers=spent),
    "limit-429": lambda spent: JSONResponse(
        {"detail": "throttled"}, 429, {**spent, "Retry-After": "120"}
    ),
    "error-500": lambda _: PlainTextResponse("Internal Server Error", 500),
    "garbage": lambda _: PlainTextResponse("<!doctype html><title>Just a moment</title>"),
    "list": lambda _: JSONResponse([]),
    "huge": lambda _: JSONResponse({"results": ["x" * _HUGE_BYTES]}),
    "redirect": lambda _: RedirectResponse("/healthz", 302),
}
_NAMED = re.compile(rf"\b({'|'.join(_ANSWERS)})\b")
_SLOW = re.compile(r"\bslow-(\d{1,2})\b")


async def trouble(text: str, spent: dict[str, str]) -> Response | None:
    """The answer that the text asks for; none, perhaps after a while, if that's the usual one."""
    if slow := _SLOW.search(text):
        await asyncio.sleep(int(slow[1]))
    named = _NAMED.search(text)
    return _ANSWERS[named[0]](spent) if named else None
