"""Creates and checks signed URLs, which open files for a limited time without credentials."""

from fastapi import Request

from api.state import State, state_of
from core import clock
from core.errors import media
from core.signed_urls import FILE_URL_LIFETIME, FILE_URLS, SignedUrls


def build_import_errors_url(state: State, import_id: int, *, has_recent_login: bool = True) -> str:
    """Omit the signature without a recent login, so that the URL can't be opened.

    Existing API clients always expect a URL, so the result is never ``None``.
    """
    path = f"/imports/{import_id}/errors.csv"
    if not has_recent_login:
        return state.resources.settings.public_base + path
    return _signed_url(state, path)


def sign_export_url(state: State, export_id: int, form: str) -> str:
    """Call this function only for a caller who has logged in recently."""
    return _signed_url(state, f"/exports/{export_id}/file.{form}.gz")


def require_signed_url(request: Request) -> None:
    if not is_signed(request, FILE_URLS, request.scope["path"]):
        raise media.SIGNED_LINK_INVALID()


def is_signed(request: Request, urls: SignedUrls, name: str) -> bool:
    return urls.opens(
        state_of(request).resources.keyring,
        name,
        expires=request.query_params.get("expires", ""),
        signature=request.query_params.get("signature", ""),
        now=clock.now(),
    )


def _signed_url(state: State, path: str) -> str:
    url, _expires_at = FILE_URLS.create(
        state.resources.keyring,
        path,
        base=state.resources.settings.public_base,
        lifetime=FILE_URL_LIFETIME,
        now=clock.now(),
    )
    return url
