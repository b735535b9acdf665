"""The mailbox in a browser, and as JSON for scripts."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from devstack.sandbox.mailbox import MAX_MAILS, Mailbox, StoredMail, parse
from devstack.sandbox.templates import render

To = Annotated[str, Query(description="Only mail to this address")]

# A mail's HTML may come from anyone: it gets no scripts, no forms and nothing from other servers.
# Its links open outside of the frame.
_MAIL_HEADERS = {
    "Content-Security-Policy": (
        "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; "
        "style-src 'unsafe-inline'; img-src data: http://127.0.0.1:* http://localhost:*"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_LINKS_OPEN_A_TAB = '<base target="_blank">'
_HEAD = re.compile(r"<head(\s[^>]*)?>|<html(\s[^>]*)?>|<!doctype[^>]*>", re.IGNORECASE)


def router(mailbox: Mailbox) -> APIRouter:
    """The pages of one mailbox, with paths below wherever it is mounted, which is ``/mail``."""
    router = APIRouter()

    @router.get("", response_class=HTMLResponse)
    async def listing(to: To = "") -> str:
        return render("mailbox.html", mails=mailbox.newest_first(to), to=to, max_mails=MAX_MAILS)

    @router.get("/messages")
    async def messages(to: To = "") -> list[dict[str, Any]]:
        return [_as_json(each) for each in mailbox.newest_first(to)]

    @router.delete("/messages")
    async def remove(to: To = "") -> dict[str, int]:
        return {"removed": mailbox.remove(to)}

    @router.get("/messages/{mail_id}", response_class=HTMLResponse)
    async def one(mail_id: int) -> str:
        return render("mail.html", mail=_find(mailbox, mail_id))

    @router.get("/messages/{mail_id}/html")
    async def html(mail_id: int) -> Response:
        part = _find(mailbox, mail_id).html
        if part is None:
            raise HTTPException(404, "This mail has no HTML part.")
        # Links open in new tabs: inside the frame they can't.
        found = list(_HEAD.finditer(part, 0, 1000))
        at = found[-1].end() if found else 0
        return HTMLResponse(part[:at] + _LINKS_OPEN_A_TAB + part[at:], headers=_MAIL_HEADERS)

    @router.get("/messages/{mail_id}/raw")
    async def raw(mail_id: int) -> Response:
        source = _find(mailbox, mail_id).raw
        return PlainTextResponse(source, headers={"X-Content-Type-Options": "nosniff"})

    return router


def _find(mailbox: Mailbox, mail_id: int) -> StoredMail:
    found = mailbox.find(mail_id)
    if found is None:
        raise HTTPException(404, "There is no such mail, or not any more.")
    return found


def _as_json(mail: StoredMail) -> dict[str, Any]:
    return {
        "id": mail.id,
        "to": mail.to,
        "from": str(parse(mail.raw)["From"] or ""),
        "subject": mail.subject,
        "text": mail.text,
        "html": mail.html,
        "headers": dict(mail.headers),
        "received_at": mail.received_at.isoformat(),
    }
