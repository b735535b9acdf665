"""Answers that several routes give: of jobs, of lists, and links to files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, StreamingResponse

from api.browsers import client_address
from api.limits.bulkheads import RECORDS, Bulkhead
from api.middleware.headers import is_head
from api.parameters import Preference
from api.schemas.envelope import envelope
from api.schemas.jobs import JobRecord
from api.schemas.lists import Channel
from api.state import State, state_of
from api.waiting.disconnects import while_connected
from api.waiting.streams import SLOW_DOWNLOADS
from core import clock
from core.errors import DomainError, FieldProblem, mailing, media
from core.errors.imports import IMPORT_ENCODING_NEEDED
from core.signed_urls import FILE_URL_LIFETIME, FILE_URLS, SignedUrls
from integrations.challenges.port import ChallengeProviderName
from models import Job, JobStatus, MailingList
from services.jobs.records import restore_error
from services.subscriptions import consent, exports, figures
from services.subscriptions import lists as own_lists
from services.subscriptions.imports.import_jobs import ADD_MEMBERS, IMPORT_FILE, IMPORT_SUPPRESSIONS
from services.subscriptions.imports.samples import add_samples
from storage.redis.notifications import job_topic
from storage.unit_of_work import UnitOfWork


async def wait_for_job(
    request: Request, state: State, job_id: int, seconds: float, *, owner_id: int = 0
) -> Job:
    """Return the job once it has ended or the wait is over; raises the error of one that failed."""
    ended = state.jobs.wait(job_topic(job_id), seconds, owner_id=owner_id)
    await while_connected(request.receive, ended)
    job = await state.in_unit_of_work(lambda uow: uow.session.get_one(Job, job_id))
    if job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        raise await RECORDS.run(_error_with_readings, state, job)
    return job


def job_response(state: State, job: Job) -> JSONResponse:
    """Answer the job's record: 200 when it has succeeded, 202 and its ``Location`` before that.

    For an import it reads samples of the file: call it in a thread.
    """
    result = result_with_samples(state, job, result_with_links(state, job))
    record = JobRecord.of(job, result)
    status, headers = HTTPStatus.OK, {}
    if job.status != JobStatus.SUCCEEDED:
        status, headers = HTTPStatus.ACCEPTED, {"Location": f"/jobs/{job.id}"}
    return JSONResponse(envelope(record).model_dump(mode="json"), status, headers)


def count_response(job: Job, number: str, *, replayed: bool = False) -> JSONResponse:
    """Answer a number from the job's result; while the job goes on, 202 with its id."""
    headers = {"Idempotent-Replayed": "true"} if replayed else {}
    if job.status == JobStatus.SUCCEEDED:
        assert job.result is not None
        return JSONResponse(envelope(job.result[number]).model_dump(), headers=headers)
    headers["Location"] = f"/jobs/{job.id}"
    return JSONResponse(envelope(job.id).model_dump(), HTTPStatus.ACCEPTED, headers)


def _error_with_readings(state: State, job: Job) -> DomainError:
    """Return the error of a failed job, with sample rows if a file's encoding is uncertain."""
    error = restore_error(job)
    problems = [FieldProblem(**each) for each in readings_of(state, job)]
    return replace(error, problems=tuple(problems)) if problems else error


def readings_of(state: State, job: Job) -> list[dict[str, str]]:
    """Return sample rows of an imported file, decoded with each possible encoding.

    Each entry is an error about the query parameter ``encoding``. The list is empty unless the job
    failed because the encoding is uncertain. Call this function in a thread, because it queries the
    database.
    """
    code = IMPORT_ENCODING_NEEDED.code
    if job.error is None or job.error["code"] != code:
        return []
    found = add_samples(state.resources, {"import_id": job.subject_id})
    return [
        {
            "field": "query.encoding",
            "code": code,
            "message": f"{each['encoding']}: {' | '.join(each['rows'])}",
        }
        for each in found.get("readings", ())
    ]


async def undo_response(
    request: Request,
    state: State,
    preference: Preference,
    begin: Callable[..., int | None],
) -> JSONResponse:
    """Answer how many an undo took back; ``begin`` returns its job, or ``None`` for no work."""
    job_id = await state.in_unit_of_work(begin)
    if job_id is None:
        return JSONResponse(envelope(0).model_dump())
    job = await wait_for_job(request, state, job_id, preference.seconds(UNDO_WAIT_SECONDS))
    return count_response(job, "undone")


UNDO_WAIT_SECONDS = 30.0

# How what an owner sets of a list may be refused.
LIST_RULES = (
    mailing.LIST_FIELDS,
    mailing.LIST_SLUG_TAKEN,
    mailing.LIST_TITLE,
    mailing.LIST_SLUG,
    mailing.LIST_IMAGE_URL,
    mailing.LIST_CHALLENGE_PROVIDER,
    mailing.LIST_REDIRECT_ORIGINS,
    mailing.LIST_CONSENT_WORDINGS,
    mailing.LIST_COLOUR,
    mailing.LIST_LOGO,
    mailing.LIST_SENDER_NAME,
    mailing.LIST_WORDS,
    mailing.TEXT_LEADS_AWAY,
    mailing.TEXT_MISLEADING,
)


def list_responses(uow: UnitOfWork, state: State, lists: Sequence[MailingList]) -> list[Channel]:
    """Return the records of lists, with their numbers, site keys and wordings."""
    subscribers = figures.count_subscribers(uow, {each.id for each in lists})
    texts = consent.of_lists(uow, lists)
    keys = {
        name: state.challenges.challenge_for(ChallengeProviderName(name)).site_key
        for name in {each.challenge_provider for each in lists}
        if name is not None and name in state.challenges.configured
    }
    return [
        Channel.of(
            each,
            subscribers[each.id],
            keys.get(each.challenge_provider or ""),
            texts.get(each.id),
            own_lists.field_keys(uow, each),
        )
        for each in lists
    ]


def list_response(uow: UnitOfWork, state: State, mailing_list: MailingList) -> Channel:
    return list_responses(uow, state, [mailing_list])[0]


def import_errors_url(state: State, import_id: int, *, has_recent_login: bool = True) -> str:
    """Return the URL of the rows that an import didn't add. The URL's signature expires.

    A caller without a recent login gets a URL without a signature. Such a URL can't be opened. The
    result is never ``None``, because released clients expect a URL.
    """
    path = f"/imports/{import_id}/errors.csv"
    if not has_recent_login:
        return state.resources.settings.public_base + path
    return _signed_url(state, path)


def export_url(state: State, export_id: int, form: str) -> str:
    """Return the signed URL of an export's file, for a caller with a recent login; it expires."""
    return _signed_url(state, f"/exports/{export_id}/file.{form}.gz")


def result_with_links(
    state: State, job: Job, *, has_recent_login: bool = True
) -> dict[str, Any] | None:
    """Return a job's result, with newly signed URLs of the files that the job wrote.

    These files contain e-mail addresses. A caller without a recent login gets no working URL.
    """
    result = job.result
    if result is None:
        return None
    if job.kind in {ADD_MEMBERS.name, IMPORT_FILE.name, IMPORT_SUPPRESSIONS.name}:
        import_id = result["import_id"]
        url = import_errors_url(state, import_id, has_recent_login=has_recent_login)
        return {**result, "errors_url": url}
    if job.kind in {kind.name for kind in exports.EXPORT_JOBS.values()}:
        url = export_url(state, result["export_id"], result["format"])
        return {**result, "url": url if has_recent_login else None}
    return result


def result_with_samples(
    state: State, job: Job, result: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Add what an import's owner is shown of the file; it reads, so call it in a thread."""
    if result is None or job.kind not in {IMPORT_FILE.name, IMPORT_SUPPRESSIONS.name}:
        return result
    return add_samples(state.resources, result)


def require_signed_url(request: Request) -> None:
    """Raises ``link.invalid`` unless the request's path is signed and not yet expired."""
    if not is_signed(request, FILE_URLS, request.scope["path"]):
        raise media.SIGNED_LINK_INVALID()


def is_signed(request: Request, urls: SignedUrls, name: str) -> bool:
    """Return whether the request's query opens the file of this name."""
    return urls.opens(
        state_of(request).resources.keyring,
        name,
        expires=request.query_params.get("expires", ""),
        signature=request.query_params.get("signature", ""),
        now=clock.now(),
    )


def streamed(
    request: Request,
    bulkhead: Bulkhead,
    content: Iterator[bytes],
    headers: dict[str, str],
    media_type: str,
    *,
    status: int = HTTPStatus.OK,
) -> StreamingResponse:
    """Answer pieces that are made in threads of the bulkhead; none of them to a HEAD."""
    pieces = bulkhead.iterate(iter(()) if is_head(request.scope) else content)
    watched = SLOW_DOWNLOADS.watched(client_address(request), pieces)
    return StreamingResponse(watched, status, headers, media_type)


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
