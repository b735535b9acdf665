"""The pages on which a person confirms a sign-up by a mailed link."""

from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from api.auth import actors
from api.auth.actors import Principal
from api.auth.requirements import BY_LINK
from api.bodies.forms import FormOrJsonBodyOf
from api.bodies.json_bodies import ThreadedRoute
from api.html.frame import list_page, see_other
from api.html.problems import reader_language
from api.limits.bulkheads import ACTS_BY_LIST
from api.parameters import StateOf, Transaction
from core.errors import people
from services.accounts import email_addresses
from services.subscriptions import branding, consent, page_urls, sign_up
from services.subscriptions.members.changes import Via

router = APIRouter(dependencies=[BY_LINK], include_in_schema=False, route_class=ThreadedRoute)


@router.get(page_urls.CONFIRM_PATH)
def show_confirmation(
    request: Request, uow: Transaction, token: Annotated[str | None, Query()] = None
) -> Response:
    found = sign_up.read_confirmation(uow, _secret(token))
    mailing_list = found.mailing_list
    return list_page(
        "confirm.html",
        branding.of(uow, mailing_list),
        language=reader_language(request),
        list_title=mailing_list.title,
        wording=consent.of_lists(uow, [mailing_list]).get(mailing_list.id),
        is_confirmed=found.is_confirmed,
        wants_mail=found.record.email_enabled,
        words=mailing_list.thanks_text,
        address=None if found.record.email is None else email_addresses.masked(found.record.email),
    )


@router.post(page_urls.CONFIRM_PATH)
async def confirm_subscription(
    request: Request,
    state: StateOf,
    submission: FormOrJsonBodyOf,
    token: Annotated[str | None, Query()] = None,
) -> Response:
    secret = _secret(token, submission.fields.get("token"))
    found = await state.in_unit_of_work(sign_up.read_confirmation, secret)
    list_id = found.mailing_list.id
    principal = Principal(found.record.user_id, Via.CONFIRMATION, None)
    actor = actors.actor_of_principal(request, principal)
    confirm = partial(sign_up.confirm, secret=secret, actor=actor)
    await ACTS_BY_LIST.run(list_id, state.transact, confirm)
    return see_other(urlencode({"token": secret}))


def _secret(*sent: object) -> str:
    """Return the one token of the request; raises for none, and for two that differ."""
    found = {each for each in sent if isinstance(each, str) and each}
    if not found:
        raise people.LINK_MISSING()
    if len(found) > 1:
        raise people.LINK_AMBIGUOUS()
    return found.pop()
