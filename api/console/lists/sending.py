"""The console pages that lead an owner from a list to its first issue."""

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.developers.routes import LIFETIMES, KeyView, read_expiry
from api.console.navigation import get_list_path
from api.console.plan_notices import find_plan_notice
from api.console.requests import (
    AccessPage,
    EmptyForm,
    RecentAccessForm,
    RecentAccessPage,
    build_router,
    shows_errors_on,
)
from api.record_ids import ListId
from api.state import Transaction
from core.errors.access import API_KEY_NAME
from core.scopes import Scope
from core.settings.notations import PlanQuota
from models import SenderState
from services.access import api_keys
from services.accounts import own_keys
from services.paging import PageRequest
from services.senders import senders
from services.subscriptions import mailings

router = build_router(f"{CONSOLE_PATH}/lists")

# Maps the state of a sender to a mark and to words.
_SENDER_STATES = {
    SenderState.WAITING: ("", "waiting for the first report"),
    SenderState.WORKING: ("good", "reports arrive"),
    SenderState.FAILING: ("bad", "failing"),
    SenderState.PAUSED: ("warn", "paused"),
}


@router.get("/{list_id}/send")
def show_sending(console: AccessPage, uow: Transaction, list_id: ListId) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    return console.render_page(
        "send.html",
        list=mailing_list,
        can_send=uow.settings.owners_send,
        keys=[
            KeyView(key)
            for key in api_keys.list_active_keys(uow, console.account_id)
            if mailing_list.id in (key.list_ids or ())
        ],
        senders=sorted(
            (
                sender
                for sender in senders.list_senders(uow, console.account_id)
                if sender.list_ids is None or mailing_list.id in sender.list_ids
            ),
            key=lambda sender: sender.state != SenderState.FAILING,
        ),
        sender_states=_SENDER_STATES,
        mailings=mailings.list_mailings(uow, mailing_list.id, PageRequest(1)).rows,
    )


@router.get("/{list_id}/send/key")
def show_new_sending_key(
    console: RecentAccessPage, uow: Transaction, list_id: ListId, form: EmptyForm
) -> Response:
    return console.render_page(
        "new_sending_key.html",
        form.fill({"name": "Newsletter sender", "lifetime": "365"}),
        list=console.get_own_list(uow, list_id),
        lifetimes=[(value, label) for value, (label, _) in LIFETIMES.items()],
        refusal=find_plan_notice(uow, console.account_id, PlanQuota.KEYS),
    )


@router.post("/{list_id}/send/key")
@shows_errors_on(show_new_sending_key, {API_KEY_NAME.code: "name"})
def create_sending_key(console: RecentAccessForm, uow: Transaction, list_id: ListId) -> Response:
    """Create an API key that exports the list's roster, and show its secret once."""
    mailing_list = console.get_own_list(uow, list_id)
    key, secret = own_keys.create_own_key(
        uow,
        console.caller,
        name=console.form.get("name", ""),
        scopes=[Scope.DELIVERY],
        list_ids=[mailing_list.id],
        expires_at=read_expiry(console.form),
    )
    return console.render_page(
        "key_made.html",
        each=KeyView(key),
        secret=secret,
        next_path=f"{get_list_path(mailing_list.id)}/send",
    )
