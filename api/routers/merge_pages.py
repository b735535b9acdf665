"""The pages on which a person agrees that an address brings its own record into their account."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.access import page_sessions
from api.access.page_sessions import FormOf, RecentFormMember, RecentMember, session_page
from api.access.requirements import PUBLIC
from api.limits.bulkheads import RECORDS
from api.parameters import StateOf
from api.request_ids import current_request_id
from services.mailing.addresses import shown_addresses
from services.people import accounts, known_browsers, page_urls, registration

# No operations of the API, so not in its document. The pages are for people who are logged in.
router = APIRouter(include_in_schema=False)

Token = Annotated[str, Query()]


@router.get(page_urls.MERGE_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_merge(
    state: StateOf,
    member: RecentMember,
    token: Token = "",
    sent: Annotated[str | None, Query()] = None,
) -> Response:
    """Only for the person who asked for the change, so that no other can be talked into it."""
    keyring, user_id = state.resources.keyring, member.user_id
    with state.resources.unit_of_work() as uow:
        current = accounts.get(uow, user_id).email
        if sent is not None:
            return session_page(member, state, "merge_asked.html", current_email=current)
        email = registration.read_merge(uow, keyring, token, user_id)
    return session_page(
        member, state, "confirm_merge.html", token=token, email=email, current_email=current
    )


@router.post(page_urls.MERGE_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def merge_records(
    state: StateOf, member: RecentFormMember, form: FormOf, token: Token = ""
) -> Response:
    keyring, secret = state.resources.keyring, form.get("token") or token
    with state.resources.unit_of_work() as uow:
        person = registration.merge_records(
            uow, keyring, secret, member.caller, request_id=current_request_id()
        )
        known = known_browsers.known_browser_token(keyring, person)
    reply = page_sessions.redirect_to_path(state, f"{page_urls.ACCOUNT_PATH}?done=merge")
    state.cookies.keep_known(reply, known)
    return reply


@router.post(page_urls.SHOW_EMAIL_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_address(state: StateOf, member: RecentFormMember, _: FormOf) -> Response:
    """Let the owners of the person's lists see the address that the account has now."""
    with state.resources.unit_of_work() as uow:
        shown_addresses.begin(uow, member.caller, request_id=current_request_id())
    return page_sessions.redirect_to_path(state, f"{page_urls.ACCOUNT_PATH}?done=shown")
