"""What programs look for on any host: whom to tell of a hole, and where a password is changed."""

from datetime import timedelta

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response

from api.access.page_sessions import redirect_to_path
from api.access.requirements import PUBLIC
from api.parameters import StateOf
from core import clock
from core.refusals.requests import ROUTE_NOT_FOUND
from services.people import page_urls

router = APIRouter(prefix="/.well-known", dependencies=[PUBLIC], include_in_schema=False)

# RFC 9116 recommends less than a year.
SECURITY_TXT_LIFETIME = timedelta(days=180)


@router.get("/security.txt")
async def read_security_txt(state: StateOf) -> Response:
    """Whom to tell of a hole (RFC 9116); raises ``route.not_found`` without a contact."""
    settings = state.resources.settings
    if not settings.security_contacts:
        raise ROUTE_NOT_FOUND()
    expires = (clock.now() + SECURITY_TXT_LIFETIME).date()
    fields = [("Contact", each) for each in settings.security_contacts]
    fields += [
        ("Expires", f"{expires}T00:00:00Z"),
        ("Preferred-Languages", "en"),
        ("Canonical", f"{settings.public_base}/.well-known/security.txt"),
    ]
    if settings.security_policy is not None:
        fields.append(("Policy", str(settings.security_policy)))
    text = "".join(f"{name}: {value}\n" for name, value in fields)
    return PlainTextResponse(text, headers={"Cache-Control": "public, max-age=86400"})


@router.get("/change-password")
async def find_password_page(state: StateOf) -> Response:
    """Lead a password manager to the page on which a password is changed."""
    return redirect_to_path(state, page_urls.PASSWORD_PATH)
