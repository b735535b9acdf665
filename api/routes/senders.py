"""The API endpoints for senders, which report deliveries, bounces and complaints of mails."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request

from api.auth.member_reads import count_members_page
from api.auth.requirements import UNLIMITED, SenderKeeper
from api.auth.sender_proofs import verify_sender
from api.bodies.content_encodings import is_gzip
from api.limits.bulkheads import REPORTS
from api.limits.keyed_bulkheads import SEARCHES_BY_CALLER
from api.openapi.declarations import error_responses
from api.paging import Cursor, Limit
from api.record_ids import PathId, parse_id
from api.response_timing import pad_failure
from api.route_classes import JsonRoute
from api.schemas import senders as schemas
from api.schemas.envelope import Envelope, build_envelope
from api.state import StateOf, Transaction
from core.errors import access, mailing, requests
from core.errors import senders as errors
from core.scopes import Scope
from core.settings import Settings
from integrations.senders.port import ReportKind, SenderProvider
from models import ReportOutcome, Sender
from services.paging import PageRequest
from services.senders import intake, report_history, sender_secrets, senders, trials
from services.senders.posted_bodies import PostedBody
from services.senders.provider_keys import CREATED_SECRETS
from services.senders.report import ReceivedReport
from services.senders.senders import NewSender, SenderChange
from storage.unit_of_work import UnitOfWork

_SENDERS_PATH = "/senders"
_SENDER_PATH = _SENDERS_PATH + "/{sender_id}"

# The maximum time to verify and store a request body with reports. If a request takes longer
# than this, the mail provider gets the error ``sender.busy``, and sends the request again later.
# The time must be below 15 seconds, because Amazon SNS stops waiting for a response after 15
# seconds.
_MAX_INTAKE_SECONDS = 10.0
_BODY_SCHEMA = {
    "type": "object",
    "description": "Reports in Pressroom's own format or in the format of the sender's provider",
    "examples": [
        {
            "type": "delivery.reports",
            "timestamp": "2026-11-29T12:00:00Z",
            "data": {
                "reports": [
                    {
                        "kind": "bounced",
                        "delivery_id": "d1" + "0" * 50,
                        "occurred_at": "2026-11-29T11:59:58Z",
                        "bounce": {"class": "hard", "status": "5.1.1"},
                    }
                ]
            },
        }
    ],
}

router = APIRouter(tags=["Senders"], route_class=JsonRoute)


@router.post(
    _SENDERS_PATH,
    summary="Create a sender",
    responses=error_responses(
        errors.SENDER_TOO_MANY,
        errors.SENDER_NEEDS_DELIVERY,
        errors.SENDER_KEY_INVALID,
        errors.SENDER_TOPIC_INVALID,
        mailing.LIST_NOT_FOUND,
        access.AUTH_LOGIN_AGAIN,
    ),
)
def create_sender(
    uow: Transaction, state: StateOf, caller: SenderKeeper, body: schemas.NewSender
) -> Envelope[schemas.CreatedSender]:
    """Create a sender. Only the response to this request contains the sender's secret.

    The provider posts its reports to `url`. Pressroom tells the owner of the account by e-mail that
    the sender was created. Callers with a session cookie must have logged in within the last 15
    minutes.
    """
    new = NewSender(
        name=body.name,
        provider=body.provider,
        list_ids=body.list_ids,
        any_list=body.any_list,
        topic_arn=body.topic_arn,
        keys=body.keys,
    )
    sender, secret = senders.create_sender(uow, caller, new)
    has_username = body.provider in CREATED_SECRETS - {SenderProvider.GENERIC}
    record = schemas.CreatedSender.of_sender(
        sender,
        state.resources.settings,
        senders.SenderFigures(),
        secret=secret,
        username=sender_secrets.USERNAME if has_username else None,
    )
    return build_envelope(record)


@router.get(_SENDERS_PATH, summary="List all senders")
def list_senders(
    uow: Transaction, state: StateOf, caller: SenderKeeper
) -> Envelope[list[schemas.SenderRecord]]:
    """List your senders, newest first."""
    rows = senders.list_senders(uow, caller.account_id)
    figures = senders.count_outcomes(uow, [row.id for row in rows])
    settings = state.resources.settings
    return build_envelope(
        [schemas.SenderRecord.of_sender(row, settings, figures[row.id]) for row in rows]
    )


@router.get(
    _SENDER_PATH, summary="Retrieve a sender", responses=error_responses(errors.SENDER_NOT_FOUND)
)
def read_sender(
    uow: Transaction, state: StateOf, caller: SenderKeeper, sender_id: PathId
) -> Envelope[schemas.SenderRecord]:
    """Retrieve one of your senders."""
    sender = senders.get_sender(uow, caller, sender_id)
    return build_envelope(_describe_sender(uow, state.resources.settings, sender))


@router.patch(
    _SENDER_PATH,
    summary="Update a sender",
    responses=error_responses(
        errors.SENDER_NOT_FOUND,
        errors.SENDER_NEEDS_DELIVERY,
        errors.SENDER_KEY_INVALID,
        errors.SENDER_TOPIC_INVALID,
        mailing.LIST_NOT_FOUND,
        access.AUTH_LOGIN_AGAIN,
    ),
)
def change_sender(
    uow: Transaction,
    state: StateOf,
    caller: SenderKeeper,
    sender_id: PathId,
    body: schemas.SenderChange,
) -> Envelope[schemas.SenderRecord]:
    """Update a sender, or pause or resume it.

    After you change the provider's key, the former key stays valid for 24 hours. To change the key
    or the topic, callers with a session cookie must have logged in within the last 15 minutes.
    """
    change = SenderChange(
        name=body.name,
        list_ids=body.list_ids,
        covers_all_lists="list_ids" in body.model_fields_set and body.list_ids is None,
        any_list=body.any_list,
        topic_arn=body.topic_arn,
        keys=body.keys,
        state=body.state,
    )
    sender = senders.change_sender(uow, caller, sender_id, change)
    return build_envelope(_describe_sender(uow, state.resources.settings, sender))


@router.delete(
    _SENDER_PATH, summary="Delete a sender", responses=error_responses(errors.SENDER_NOT_FOUND)
)
def delete_sender(uow: Transaction, caller: SenderKeeper, sender_id: PathId) -> Envelope[int]:
    """Delete a sender.

    Pressroom rejects all further requests of a deleted sender, and discards the deleted sender's
    stored reports that haven't taken effect yet.
    """
    return build_envelope(senders.delete_sender(uow, caller, sender_id))


@router.post(
    f"{_SENDER_PATH}/rotate",
    summary="Rotate a sender's secret",
    responses=error_responses(
        errors.SENDER_NOT_FOUND,
        errors.SENDER_NEEDS_DELIVERY,
        errors.SENDER_KEY_INVALID,
        access.AUTH_LOGIN_AGAIN,
    ),
)
def rotate_sender_secret(
    uow: Transaction, caller: SenderKeeper, sender_id: PathId
) -> Envelope[schemas.RotatedSenderSecret]:
    """Replace a sender's secret with a new one. The former secret stays valid for another 24 hours.

    Only senders with the provider generic, postmark or brevo have a secret. Callers with a session
    cookie must have logged in within the last 15 minutes.
    """
    secret = senders.rotate_secret(uow, caller, sender_id)
    return build_envelope(schemas.RotatedSenderSecret(secret=secret))


@router.get(
    f"{_SENDER_PATH}/reports",
    summary="List recent reports",
    responses=error_responses(errors.SENDER_NOT_FOUND, requests.CURSOR_INVALID),
)
def list_sender_reports(
    uow: Transaction,
    caller: SenderKeeper,
    sender_id: PathId,
    outcome: ReportOutcome | None = None,
    kind: ReportKind | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Envelope[schemas.SenderReportsPage]:
    """List the reports of the last 7 days, newest first.

    A page that you filter by `outcome` or `kind` may contain fewer reports than `limit`, even if
    more pages follow.
    """
    page = report_history.list_reports(
        uow,
        caller,
        sender_id,
        page=PageRequest(limit, cursor=cursor),
        outcome=outcome,
        kind=kind,
    )
    items = [schemas.ReportRecord.model_validate(row) for row in page.rows]
    pagination = schemas.ReportsPagination(limit=limit, next_cursor=page.next_cursor)
    return build_envelope(schemas.SenderReportsPage(pagination=pagination, items=items))


@router.post(
    f"{_SENDER_PATH}/try",
    summary="Try a body",
    responses=error_responses(
        errors.SENDER_NOT_FOUND,
        requests.BODY_TOO_LARGE.fill(most="256 KB"),
        errors.REPORT_INVALID,
        errors.REPORT_TOO_MANY.fill(most=trials.MAX_TRIED_REPORTS),
        errors.REPORT_TRACE_ID_REFUSED,
        requests.REQUEST_TOO_SLOW.fill(seconds=trials.MAX_TRIAL_SECONDS),
    ),
)
async def try_sender_body(
    state: StateOf, caller: SenderKeeper, sender_id: PathId, body: schemas.SenderTrial
) -> Envelope[list[schemas.TriedReport]]:
    """Show the effects that the reports in a request body would have, without changing any data.

    Pressroom doesn't verify the provider's signature of the tested request. The body can have at
    most 256 KB and 100 reports. Without the scope `subscription.read`, a key gets only the facts in
    the body: `outcome`, `recipient` and the ids are null. A trial in a session counts as a page of
    members.
    """
    can_read_members = Scope.SUBSCRIPTION_READ in caller.scopes

    def run_trial() -> list[ReceivedReport]:
        with state.resources.unit_of_work() as uow:
            sender = senders.get_sender(uow, caller, sender_id)
        content = body.body.encode()
        if not can_read_members:
            return trials.read_reports(state.resources, sender, content)
        received = trials.run_trial(state.resources, sender, content)
        count_members_page(state, caller)
        return received

    received = await SEARCHES_BY_CALLER.run(caller.account_id, run_trial)
    describe = (
        schemas.TriedReport.of_report if can_read_members else schemas.TriedReport.of_unread_report
    )
    return build_envelope([describe(each) for each in received])


@router.post(
    f"{_SENDER_PATH}/events",
    summary="Receive reports",
    dependencies=[UNLIMITED],
    responses=error_responses(
        errors.SENDER_SIGNATURE_INVALID,
        requests.BODY_TOO_LARGE,
        requests.BODY_ENCODING_UNSUPPORTED,
        errors.REPORT_INVALID,
        errors.REPORT_TOO_MANY,
        errors.REPORT_TRACE_ID_REFUSED,
        errors.SENDER_BUSY,
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _BODY_SCHEMA}},
        }
    },
)
async def receive_reports(
    request: Request, state: StateOf, sender_id: Annotated[str, Path(examples=["7"])]
) -> Envelope[int]:
    """Receive the reports of a sender.

    The sender's provider posts the reports, and authenticates each request with a signature or a
    secret. If the provider is `generic`, sign the request according to Standard Webhooks 1.0, or
    send an API key with the scope `sender`. Reports take effect within seconds. In the response,
    `data` is always 1, even if the reports change nothing. A body can be compressed with gzip. The
    signature is then the signature of the compressed bytes.
    """
    is_compressed = is_gzip(request.headers)
    body = PostedBody(await request.body(), is_compressed)
    try:
        async with asyncio.timeout(_MAX_INTAKE_SECONDS):
            async with pad_failure():
                sender = await verify_sender(request, state, parse_id(sender_id) or 0, body)
            await REPORTS.run(intake.store_body, state.resources, sender, body)
    except TimeoutError:
        raise errors.SENDER_BUSY() from None
    return build_envelope(1)


def _describe_sender(uow: UnitOfWork, settings: Settings, sender: Sender) -> schemas.SenderRecord:
    figures = senders.count_outcomes(uow, [sender.id])
    return schemas.SenderRecord.of_sender(sender, settings, figures[sender.id])
