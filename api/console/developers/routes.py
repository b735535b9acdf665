"""Pages on which an owner manages API keys and connected apps, and sees the feed of events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends
from fastapi.responses import Response

from api.auth.requirements import KIND_PERMISSION
from api.bodies.page_forms import FormFields
from api.console.assets import CONSOLE_PATH
from api.console.developers.views import (
    TYPE_LABELS,
    list_newest_events,
    merge_similar_events,
)
from api.console.plan_notices import find_plan_notice
from api.console.requests import (
    AccessForm,
    AccessPage,
    ConsoleAccess,
    ConsoleRequest,
    EmptyForm,
    RecentAccessForm,
    RecentAccessPage,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import TypedForm, build_field_error
from api.paging import Cursor
from api.record_ids import PathId
from api.state import Transaction
from core import clock
from core.errors.access import API_KEY_NAME, API_KEY_NOT_FOUND, GRANT_NOT_FOUND
from core.permissions import Permission
from core.scopes import KEY_SCOPE_EXPLANATIONS, Scope, list_known_scopes
from core.settings.notations import PlanQuota, Retained
from models import ApiKey, EndpointState
from services.access import api_keys, api_requests
from services.accounts import own_keys
from services.accounts.page_paths import GRANTS_PATH, KEYS_PATH
from services.feed.catalogue import FeedEventType
from services.oauth import grants
from services.oauth.grants import GrantSummary
from services.paging import PageRequest
from services.senders import senders, senders_of_keys
from services.senders.senders_of_keys import revoke_key
from services.subscriptions import lists
from services.webhooks import endpoints_of_keys, webhook_endpoints
from storage.unit_of_work import UnitOfWork

PATH = f"{CONSOLE_PATH}/developers"
router = build_router(PATH)

KEEP_ENDPOINTS = "keep_endpoints"
EVENTS_ON_PAGE = 20
# A page with events of all types reads more events, because similar events are merged.
EVENTS_TO_MERGE = 60
REQUESTS_ON_PAGE = 50
# The choices of the status filter on the page with an API key's requests.
_STATUS_CHOICES = (
    ("", "All statuses"),
    ("2xx", "Successful (2xx)"),
    ("4xx", "Rejected (4xx)"),
    ("429", "Too many requests (429)"),
    ("5xx", "Failed (5xx)"),
)
_STATUS_FIELD = "status"
# The lifetimes that a user can choose for a new API key.
LIFETIMES = {
    "30": ("30 days", timedelta(days=30)),
    "90": ("90 days", timedelta(days=90)),
    "365": ("1 year", timedelta(days=365)),
    "": ("No expiry", None),
}
# How long before the expiry of a key its row links to the form for a new key.
_EXPIRY_NOTICE = timedelta(days=7)
_SCOPE_PREFIX = "scope."
# The permissions of a new API key, grouped by area.
_SCOPE_GROUPS = (
    ("Lists and members", (Scope.SUBSCRIPTION_READ, Scope.SUBSCRIPTION_FULL)),
    ("Images", (Scope.ATTACHMENT,)),
    ("Composer", (Scope.COMPOSER,)),
    ("Credits", (Scope.CREDIT_READ, Scope.CREDIT_FULL)),
    ("Events and reports", (Scope.WEBHOOK, Scope.SENDER)),
)
_TYPE_FIELD = "type"
_LIST_FIELD = "list_id"
AnyPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.ANY))]
AnyForm = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.ANY, is_form=True))]
FeedPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=KIND_PERMISSION))]


@router.get("")
def show_developers(console: AccessPage, uow: Transaction) -> Response:
    endpoints = webhook_endpoints.list_endpoints(uow, console.caller)
    return console.render_page(
        "developers.html",
        keys=len(api_keys.list_active_keys(uow, console.account_id)),
        grants=len(grants.list_grants(uow, console.caller).rows),
        endpoints=len(endpoints),
        senders=len(senders.list_senders(uow, console.account_id)),
        troubled=sum(
            each.failing_since is not None or each.state != EndpointState.ACTIVE
            for each in endpoints
        ),
    )


@router.get("/access")
def show_access(console: AnyPage, uow: Transaction) -> Response:
    own_grants = grants.list_grants(uow, console.caller).rows
    grants_and_scopes = [(grant, _describe_scopes(grant.scopes)) for grant in own_grants]
    return console.render_page("access.html", grants=grants_and_scopes)


def _describe_scopes(scopes: Sequence[str]) -> Sequence[str]:
    # ``KEY_SCOPE_EXPLANATIONS`` lacks the scope for rosters, because the form for keys can't limit
    # it to lists.
    operator_scope = "Export the addresses for a mailing"
    return [
        KEY_SCOPE_EXPLANATIONS.get(scope, operator_scope) for scope in list_known_scopes(scopes)
    ]


@router.get("/access/{grant_id}/end")
def show_access_revocation(console: AnyPage, uow: Transaction, grant_id: PathId) -> Response:
    return console.render_page("end_access.html", grant=_get_grant(uow, console, grant_id))


@router.post("/access/{grant_id}/end")
def revoke_access(console: AnyForm, uow: Transaction, grant_id: PathId) -> Response:
    grant = _get_grant(uow, console, grant_id)
    grants.revoke_grant(uow, console.caller, grant.id)
    return console.redirect(GRANTS_PATH, f"“{grant.client_name}” no longer has access.")


def _get_grant(uow: UnitOfWork, console: ConsoleRequest, grant_id: int) -> GrantSummary:
    for grant in grants.list_grants(uow, console.caller).rows:
        if grant.id == grant_id:
            return grant
    raise GRANT_NOT_FOUND()


@dataclass(frozen=True)
class KeyView:
    key: ApiKey

    @property
    def label(self) -> str:
        """Return the name with the last characters, which distinguish keys with the same name."""
        return f"{self.key.name} (…{self.key.last_four})"

    @property
    def words(self) -> Sequence[str] | None:
        """Return a description of each scope, or ``None`` for a key with full access."""
        scopes = self.key.scopes
        return None if scopes is None else _describe_scopes(scopes)


@router.get("/keys")
def show_keys(console: AccessPage, uow: Transaction) -> Response:
    return console.render_page(
        "keys.html", keys=_list_keys(uow, console), expiring_before=clock.now() + _EXPIRY_NOTICE
    )


@router.get("/keys/new")
def show_new_key(console: RecentAccessPage, uow: Transaction, form: EmptyForm) -> Response:
    return console.render_page(
        "new_key.html",
        form.fill({"lifetime": "90", "reach": "chosen"}),
        groups=[
            (
                heading,
                [
                    (_SCOPE_PREFIX + scope, KEY_SCOPE_EXPLANATIONS[scope], str(scope))
                    for scope in scopes
                ],
            )
            for heading, scopes in _SCOPE_GROUPS
        ],
        lifetimes=[(value, label) for value, (label, _) in LIFETIMES.items()],
        refusal=find_plan_notice(uow, console.account_id, PlanQuota.KEYS),
    )


@router.post("/keys/new")
@shows_errors_on(show_new_key, {API_KEY_NAME.code: "name"})
def create_key(console: RecentAccessForm, uow: Transaction) -> Response:
    """Create an API key, and show its secret once.

    The response isn't a redirect, because the URL would have to contain the secret.
    """
    form = console.form
    ticked_scopes = [scope for scope in KEY_SCOPE_EXPLANATIONS if _SCOPE_PREFIX + scope in form]
    reach = form.get("reach")
    if reach not in {"all", "chosen"} or (reach == "chosen" and not ticked_scopes):
        raise build_field_error("reach", "select at least one permission")
    if reach == "all" and ticked_scopes:
        raise build_field_error("reach", "choose either full access or single permissions")
    key, secret = own_keys.create_own_key(
        uow,
        console.caller,
        name=form.get("name", ""),
        scopes=None if reach == "all" else ticked_scopes,
        expires_at=read_expiry(form),
    )
    return console.render_page(
        "key_made.html", each=KeyView(key), secret=secret, next_path=KEYS_PATH
    )


def read_expiry(form: FormFields) -> datetime | None:
    """Return when a new API key expires, by the period that the user chose."""
    lifetime = form.get("lifetime", "")
    if lifetime not in LIFETIMES:
        raise build_field_error("lifetime", "choose one of the listed periods")
    _, duration = LIFETIMES[lifetime]
    return None if duration is None else clock.now() + duration


@router.get("/keys/{key_id}/requests")
def show_requests(
    console: AccessPage, uow: Transaction, key_id: PathId, cursor: Cursor = None
) -> Response:
    """Show the latest requests with an API key, even if the key is expired."""
    selected_status = console.request.query_params.get(_STATUS_FIELD, "")
    statuses = [value for value, _ in _STATUS_CHOICES if value and value == selected_status]
    page = api_requests.list_requests(
        uow,
        console.account_id,
        key_id,
        PageRequest(REQUESTS_ON_PAGE, cursor=cursor),
        status=statuses[0] if statuses else None,
    )
    return console.render_page(
        "key_requests.html",
        TypedForm({_STATUS_FIELD: statuses[0]} if statuses else {}),
        each=KeyView(api_keys.get_key(uow, console.account_id, key_id)),
        requests=page.rows,
        next_cursor=page.next_cursor,
        statuses=_STATUS_CHOICES,
        most=api_requests.MAX_REQUESTS_PER_KEY,
        days=console.state.resources.settings.retention[Retained.REQUESTS],
    )


@router.get("/keys/{key_id}/end")
def show_key_revocation(console: AccessPage, uow: Transaction, key_id: PathId) -> Response:
    key = _get_key(uow, console, key_id)
    return console.render_page(
        "end_key.html",
        TypedForm(),
        each=key,
        endpoints=endpoints_of_keys.list_live_endpoints_of_key(uow, key_id),
        senders=senders_of_keys.list_senders_of_key(uow, key_id),
    )


@router.post("/keys/{key_id}/end")
def revoke_own_key(console: AccessForm, uow: Transaction, key_id: PathId) -> Response:
    """Revoke an API key and all keys that it created.

    Their webhook endpoints and senders are deleted too, unless the user chooses to keep them.
    """
    label = _get_key(uow, console, key_id).label
    keep_endpoints = KEEP_ENDPOINTS in console.form
    revoke_key(uow, key_id=key_id, account_id=console.account_id, keep_endpoints=keep_endpoints)
    return console.redirect(KEYS_PATH, f"The key “{label}” was revoked.")


def _list_keys(uow: UnitOfWork, console: ConsoleRequest) -> list[KeyView]:
    return [KeyView(key) for key in api_keys.list_active_keys(uow, console.account_id)]


def _get_key(uow: UnitOfWork, console: ConsoleRequest, key_id: int) -> KeyView:
    for view in _list_keys(uow, console):
        if view.key.id == key_id:
            return view
    raise API_KEY_NOT_FOUND()


@router.get("/feed")
def show_events(console: FeedPage, uow: Transaction, cursor: Cursor = None) -> Response:
    """Show the newest events. An unknown type or list in the query selects all events."""
    query = console.request.query_params
    types = [kind for kind in FeedEventType if kind == query.get(_TYPE_FIELD)]
    own_lists = lists.list_choices(uow, console.account_id)
    list_ids = [each.id for each in own_lists if str(each.id) == query.get(_LIST_FIELD)]
    page = list_newest_events(
        uow,
        console.caller,
        only=types,
        limit=EVENTS_ON_PAGE if types else EVENTS_TO_MERGE,
        list_id=list_ids[0] if list_ids else None,
        cursor=cursor,
    )
    choices = {_TYPE_FIELD: types[:1], _LIST_FIELD: list_ids[:1]}
    typed = {name: str(value) for name, values in choices.items() for value in values}
    console.count_members_page(uow)
    return console.render_page(
        "events.html",
        TypedForm(typed),
        query=f"?{urlencode(typed)}",
        events=page.events if types else merge_similar_events(page.events),
        next_cursor=page.next_cursor,
        lists=[(str(each.id), each.title) for each in own_lists],
        types=[("", "All types"), *((str(each), words) for each, words in TYPE_LABELS.items())],
    )
