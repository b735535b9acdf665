"""The API endpoints for senders, which report about the mails of lists."""

from fastapi import APIRouter

from api.auth.requirements import SenderKeeper
from api.openapi import error_responses
from api.paging import Cursor, Limit
from api.record_ids import PathId
from api.route_classes import JsonRoute
from api.schemas import senders as schemas
from api.schemas.envelope import Envelope, build_envelope
from api.state import StateOf, Transaction
from core.errors import access, mailing, requests
from core.errors import senders as errors
from core.settings import Settings
from integrations.senders.port import ReportKind, SenderProvider
from models import ReportOutcome, Sender
from services.paging import PageRequest
from services.senders import reports, sender_secrets, senders
from services.senders.provider_keys import CREATED_SECRETS
from services.senders.senders import NewSender, SenderChange
from storage.unit_of_work import UnitOfWork

_SENDERS_PATH = "/senders"
_SENDER_PATH = _SENDERS_PATH + "/{sender_id}"

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
    """Create a sender. Only this response contains the secret.

    The provider posts its reports to `url`. A session must have logged in within the last 15
    minutes. The account's user is notified by e-mail.
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
    rows = senders.list_senders(uow, caller.user_id)
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

    After a change of a key, the former key is valid for 24 hours. To change a key, a session must
    have logged in within the last 15 minutes.
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
    """Delete a sender. Pressroom rejects its later calls, and drops its waiting reports."""
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
    """Create a new secret for a sender. The former secret is valid for 24 hours.

    Only for the providers generic, postmark and brevo. A session must have logged in within the
    last 15 minutes.
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

    A page with an `outcome` or a `kind` may have few reports although more pages follow.
    """
    page = reports.list_reports(
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


def _describe_sender(uow: UnitOfWork, settings: Settings, sender: Sender) -> schemas.SenderRecord:
    figures = senders.count_outcomes(uow, [sender.id])
    return schemas.SenderRecord.of_sender(sender, settings, figures[sender.id])
