"""Pages of keys, of programs with access, and of events: all that acts for an owner."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.developers.views import WORDS, newest_events
from api.console.requests import (
    Console,
    ConsoleForm,
    ConsoleRequest,
    EmptyForm,
    RecentConsole,
    RecentConsoleForm,
    build_router,
)
from api.console.typed_forms import TypedForm, field_error
from api.record_ids import PathId
from api.state import Transaction
from core import clock
from core.errors import DomainError
from core.errors.access import API_KEY_NAME, API_KEY_NOT_FOUND, GRANT_NOT_FOUND
from core.scopes import KEY_EXPLANATIONS, Scope
from models import ApiKey, EndpointState
from services.access import api_keys
from services.accounts import own_keys
from services.accounts.page_paths import GRANTS_PATH, KEYS_PATH
from services.feed.catalogue import FeedEventType
from services.oauth import grants
from services.oauth.grants import GrantSummary
from services.webhooks import endpoints_of_keys, webhook_endpoints
from services.webhooks.endpoints_of_keys import revoke_key
from storage.unit_of_work import UnitOfWork

PATH = f"{CONSOLE_PATH}/developers"
router = build_router(PATH)


@router.get("")
def show_developers(console: Console, uow: Transaction) -> Response:
    endpoints = webhook_endpoints.list_endpoints(uow, console.caller)
    return console.render_page(
        "developers.html",
        keys=len(api_keys.list_active_keys(uow, console.user_id)),
        grants=len(grants.list_grants(uow, console.user_id).rows),
        endpoints=len(endpoints),
        troubled=sum(
            each.failing_since is not None or each.state != EndpointState.ACTIVE
            for each in endpoints
        ),
    )


def _scope_words(scopes: Sequence[str]) -> Sequence[str]:
    # The scope without an explanation is given by the operator alone.
    of_operator = "Get the rosters of lists that are sent by mail"
    return [KEY_EXPLANATIONS.get(Scope(scope), of_operator) for scope in scopes]


@router.get("/access")
def show_access(console: Console, uow: Transaction) -> Response:
    given = grants.list_grants(uow, console.user_id).rows
    shown = [(each, _scope_words(each.scopes)) for each in given]
    return console.render_page("access.html", grants=shown)


@router.get("/access/{grant_id}/end")
def show_access_end(console: Console, uow: Transaction, grant_id: PathId) -> Response:
    return console.render_page("end_access.html", grant=_own_grant(uow, console, grant_id))


@router.post("/access/{grant_id}/end")
def end_access(console: ConsoleForm, uow: Transaction, grant_id: PathId) -> Response:
    grant = _own_grant(uow, console, grant_id)
    grants.revoke_grant(uow, grant_id=grant.id, user_id=console.user_id)
    return console.redirect_with_notice(
        GRANTS_PATH, f"“{grant.client_name}” has no access any more."
    )


def _own_grant(uow: UnitOfWork, console: ConsoleRequest, grant_id: int) -> GrantSummary:
    """Return a grant in force; raises ``grant.not_found``."""
    for each in grants.list_grants(uow, console.user_id).rows:
        if each.id == grant_id:
            return each
    raise GRANT_NOT_FOUND()


KEEP_ENDPOINTS = "keep_endpoints"
_LIFETIMES = {
    "30": ("30 days", timedelta(days=30)),
    "90": ("90 days", timedelta(days=90)),
    "365": ("A year", timedelta(days=365)),
    "": ("Until I end it", None),
}
_BOX = "scope."


@dataclass(frozen=True)
class ShownKey:
    key: ApiKey

    @property
    def label(self) -> str:
        """The name and the last characters, which tell the key apart from others."""
        return f"{self.key.name} (…{self.key.last_four})"

    @property
    def words(self) -> Sequence[str] | None:
        """The rights of the key; ``None``: all that its owner has."""
        scopes = self.key.scopes
        return None if scopes is None else _scope_words(scopes)


@router.get("/keys")
def show_keys(console: Console, uow: Transaction) -> Response:
    return console.render_page("keys.html", keys=_live(uow, console))


@router.get("/keys/new")
def show_new_key(console: RecentConsole, form: EmptyForm) -> Response:
    return console.render_form(
        "new_key.html",
        form.fill({"lifetime": "90", "reach": "chosen"}),
        scopes=[(_BOX + scope, words, str(scope)) for scope, words in KEY_EXPLANATIONS.items()],
        lifetimes=[(value, label, "") for value, (label, _) in _LIFETIMES.items()],
    )


@router.post("/keys/new")
def make_key(console: RecentConsoleForm) -> Response:
    """Create the key and show it, once: the answer is no redirect, since no URL may hold it."""
    form = console.form
    ticked = [scope for scope in KEY_EXPLANATIONS if _BOX + scope in form]
    reach, lifetime = form.get("reach"), form.get("lifetime", "")
    try:
        if reach not in {"all", "chosen"} or (reach == "chosen" and not ticked):
            raise field_error("reach", "tick what the key may do")
        if reach == "all" and ticked:
            raise field_error("reach", "full access goes with no tick below")
        if lifetime not in _LIFETIMES:
            raise field_error("lifetime", "must be one of those that the page offers")
        _, lasts = _LIFETIMES[lifetime]
        with console.unit_of_work() as uow:
            key, secret = own_keys.create_own_key(
                uow,
                console.caller,
                name=form.get("name", ""),
                scopes=None if reach == "all" else ticked,
                expires_at=None if lasts is None else clock.now() + lasts,
            )
    except DomainError as error:
        return show_new_key(console, console.add_error(error, {API_KEY_NAME.code: "name"}))
    return console.render_page("key_made.html", each=ShownKey(key), secret=secret)


@router.get("/keys/{key_id}/end")
def show_key_end(console: Console, uow: Transaction, key_id: PathId) -> Response:
    each = _own_key(uow, console, key_id)
    endpoints = endpoints_of_keys.list_live_endpoints_of_key(uow, key_id)
    return console.render_form("end_key.html", TypedForm(), each=each, endpoints=endpoints)


@router.post("/keys/{key_id}/end")
def end_key(console: ConsoleForm, uow: Transaction, key_id: PathId) -> Response:
    """Revoke one key, and with it the keys that it made, and their endpoints unless they stay."""
    label, kept = _own_key(uow, console, key_id).label, KEEP_ENDPOINTS in console.form
    revoke_key(uow, key_id=key_id, user_id=console.user_id, keep_endpoints=kept)
    return console.redirect_with_notice(KEYS_PATH, f"The key “{label}” is revoked.")


def _live(uow: UnitOfWork, console: ConsoleRequest) -> list[ShownKey]:
    return [ShownKey(key) for key in api_keys.list_active_keys(uow, console.user_id)]


def _own_key(uow: UnitOfWork, console: ConsoleRequest, key_id: int) -> ShownKey:
    """Return a key in force; raises ``api_key.not_found``."""
    for each in _live(uow, console):
        if each.key.id == key_id:
            return each
    raise API_KEY_NOT_FOUND()


EVENTS_ON_PAGE = 40
_TYPE = "type"


@router.get("/feed")
def show_events(console: Console, uow: Transaction) -> Response:
    sent = console.request.query_params.get(_TYPE, "")
    only = [kind for kind in FeedEventType if kind == sent]
    return console.render_form(
        "events.html",
        TypedForm({_TYPE: only[0].value} if only else {}),
        events=newest_events(uow, console.caller, only=only, limit=EVENTS_ON_PAGE),
        types=[("", "All kinds"), *((str(each), words) for each, words in WORDS.items())],
        most=EVENTS_ON_PAGE,
    )
