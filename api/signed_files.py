"""Signed URLs of the files that jobs make."""

from typing import Any

from fastapi import Request

from api.state import State, state_of
from core import clock
from core.refusals.media import SIGNED_LINK_INVALID
from core.signed_urls import FILE_URL_LIFETIME, FILE_URLS, SignedUrls
from models import Job
from services.mailing import exports
from services.mailing.imports import shown_cells
from services.mailing.imports.import_jobs import ADD_MEMBERS, IMPORT_FILE, IMPORT_SUPPRESSIONS


def import_errors_url(state: State, import_id: int) -> str:
    """The signed URL of the rows of an import that were not added; it expires."""
    return _signed_url(state, f"/imports/{import_id}/errors.csv")


def export_url(state: State, export_id: int, form: str) -> str:
    """The signed URL of the file of an export, for one with a recent login; it expires."""
    return _signed_url(state, f"/exports/{export_id}/file.{form}.gz")


def result_with_links(
    state: State, job: Job, *, has_recent_login: bool = True
) -> dict[str, Any] | None:
    """A job's result, with fresh signed URLs of the files that the job made.

    ``None`` stands for the URL of a file that needs a recent login, for a caller without one.
    """
    result = job.result
    if result is None:
        return None
    if job.kind in {ADD_MEMBERS.name, IMPORT_FILE.name, IMPORT_SUPPRESSIONS.name}:
        return {**result, "errors_url": import_errors_url(state, result["import_id"])}
    if job.kind in {kind.name for kind in exports.EXPORT_JOBS.values()}:
        url = export_url(state, result["export_id"], result["format"])
        return {**result, "url": url if has_recent_login else None}
    return result


def result_with_samples(
    state: State, job: Job, result: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The same with what an import's owner is shown of the file; in a thread, as it reads."""
    if result is None or job.kind != IMPORT_FILE.name:
        return result
    return shown_cells.shown(state.resources, result)


def require_signed_url(request: Request) -> None:
    """Raises ``link.invalid`` unless the request's path is signed and not yet expired."""
    if not is_signed(request, FILE_URLS, request.scope["path"]):
        raise SIGNED_LINK_INVALID()


def is_signed(request: Request, urls: SignedUrls, name: str) -> bool:
    """Whether the request's query opens what has this name."""
    return urls.opens(
        state_of(request).resources.keyring,
        name,
        expires=request.query_params.get("expires", ""),
        signature=request.query_params.get("signature", ""),
        now=clock.now(),
    )


def download_headers(filename: str) -> dict[str, str]:
    return {
        "Content-Disposition": f'attachment; filename="{filename}"',
        "Cache-Control": "private, no-store",
        "X-Content-Type-Options": "nosniff",
    }


def _signed_url(state: State, path: str) -> str:
    url, _expires_at = FILE_URLS.create(
        state.resources.keyring,
        path,
        base=state.resources.settings.public_base,
        lifetime=FILE_URL_LIFETIME,
        now=clock.now(),
    )
    return url
