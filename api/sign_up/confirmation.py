"""The page on which a person confirms a subscription, after opening a mailed link.

The subscription is confirmed only when the person presses the button on the confirmation page,
because mail scanners open links.
"""

from functools import partial
from typing import Annotated
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Query, Request, Response

from api.auth import actors
from api.auth.actors import Principal
from api.auth.requirements import MAIL_LINK
from api.bodies.form_or_json import FormOrJsonBodyOf
from api.html.frame import redirect_to, redirect_to_query, render_list_page
from api.html.problems import get_reader_language
from api.limits.keyed_bulkheads import CHANGES_BY_LIST
from api.route_classes import ThreadedRoute
from api.sign_up.form import allow_redirects
from api.state import StateOf, Transaction
from core.errors import people
from services.accounts import email_addresses
from services.subscriptions import branding, page_urls, redirects, sign_up
from services.subscriptions.consent import wordings
from services.subscriptions.members.changes import Via
from services.subscriptions.members.engagement_choices import get_wording

router = APIRouter(dependencies=[MAIL_LINK], include_in_schema=False, route_class=ThreadedRoute)


@router.get(page_urls.CONFIRM_PATH)
def show_confirmation(
    request: Request,
    state: StateOf,
    uow: Transaction,
    token: Annotated[str | None, Query()] = None,
) -> Response:
    confirmation = sign_up.read_confirmation(uow, _read_secret(token))
    mailing_list = confirmation.mailing_list
    address = confirmation.record.email
    settings = state.resources.settings
    next_url = redirects.find_confirmed_redirect(settings, mailing_list)
    site_url = next_url or redirects.find_site(mailing_list)
    is_open = mailing_list.archived_at is None
    return render_list_page(
        "confirm.html",
        branding.read_look(uow, mailing_list),
        language=get_reader_language(request),
        form_targets=allow_redirects(next_url),
        list_title=mailing_list.title,
        wording=wordings.read_current_wordings(uow, [mailing_list]).get(mailing_list.id),
        mode=mailing_list.engagement,
        question=get_wording(mailing_list, get_reader_language(request)),
        is_agreed=confirmation.agreed_wording is not None,
        is_confirmed=confirmation.is_confirmed,
        wants_mail=confirmation.record.email_enabled,
        owner_text=mailing_list.thanks_text,
        list_url=page_urls.sign_up_url(settings, mailing_list.slug) if is_open else None,
        site_url=site_url,
        site_host=site_url and urlsplit(site_url).hostname,
        address=None if address is None else email_addresses.mask_address(address),
    )


@router.post(page_urls.CONFIRM_PATH)
async def confirm_subscription(
    request: Request,
    state: StateOf,
    submission: FormOrJsonBodyOf,
    token: Annotated[str | None, Query()] = None,
) -> Response:
    secret = _read_secret(token, submission.fields.get("token"))
    confirmation = await state.in_unit_of_work(sign_up.read_confirmation, secret)
    principal = Principal(confirmation.record.user_id, Via.CONFIRMATION, None)
    actor = actors.build_principal_actor(request, principal)
    mailing_list = confirmation.mailing_list
    agreed_wording = confirmation.agreed_wording
    # A stranger may have ticked the box of the sign-up form, so the box on this page decides.
    if submission.fields.get("asked") == "engagement":
        agreed_wording = None
        if submission.fields.get("engagement") == "yes":
            agreed_wording = get_wording(mailing_list, get_reader_language(request))
    confirm = partial(
        sign_up.confirm_subscription, secret=secret, actor=actor, agreed_wording=agreed_wording
    )
    await CHANGES_BY_LIST.run(mailing_list.id, state.transact, confirm)
    next_url = redirects.find_confirmed_redirect(state.resources.settings, mailing_list)
    return redirect_to(next_url) if next_url else redirect_to_query(urlencode({"token": secret}))


def _read_secret(*values: object) -> str:
    secrets = {value for value in values if isinstance(value, str) and value}
    if not secrets:
        raise people.LINK_MISSING()
    if len(secrets) > 1:
        raise people.LINK_AMBIGUOUS()
    return secrets.pop()
