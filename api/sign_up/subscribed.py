"""The page that follows a sign-up form.

The page shows the address that the reader typed, with buttons to correct the address and to send
the confirmation mail again. The page and its response time are the same for every address, so that
nobody learns who subscribes to the list.
"""

from dataclasses import replace
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from api.auth.requirements import PUBLIC
from api.bodies.page_forms import FormOf
from api.client_details import client_address
from api.html.frame import redirect_to, redirect_to_query, render_list_page
from api.html.problems import get_reader_language
from api.limits.keyed_bulkheads import CHANGES_BY_LIST
from api.record_ids import PathId
from api.response_timing import pad_duration
from api.route_classes import ThreadedRoute
from api.sign_up import sealed_answers
from api.sign_up.sealed_answers import read_answers_cookie, set_answers_cookie
from api.state import StateOf, Transaction
from core import clock
from services.subscriptions import branding, lists, page_urls, sign_up

router = APIRouter(dependencies=[PUBLIC], include_in_schema=False, route_class=ThreadedRoute)

ListQuery = Annotated[PathId, Query(alias="list")]
# The values of the query parameter ``again``, which tells the page what the last button did.
_SENT = "sent"
_EARLY = "early"
# The name of the button that leads back to the sign-up form.
_CORRECT = "correct"
# Maps the name of a mail provider to the URL of its mailboxes and to its domains.
_MAILBOXES = {
    "Gmail": ("https://mail.google.com/", frozenset({"gmail.com", "googlemail.com"})),
    "Outlook": (
        "https://outlook.live.com/mail/",
        frozenset(
            {
                *("outlook.com", "outlook.at", "outlook.de", "outlook.es", "outlook.fr"),
                *("outlook.it", "hotmail.com", "hotmail.ch", "hotmail.co.uk", "hotmail.de"),
                *("hotmail.es", "hotmail.fr", "hotmail.it", "hotmail.nl", "live.at", "live.com"),
                *("live.co.uk", "live.de", "live.fr", "live.it", "live.nl", "msn.com"),
            }
        ),
    ),
}


@router.get(page_urls.SUBSCRIBED_PATH)
def show_subscribed(
    request: Request,
    state: StateOf,
    uow: Transaction,
    list_id: ListQuery,
    again: Annotated[str | None, Query()] = None,
) -> Response:
    mailing_list = lists.get_list(uow, list_id)
    answers = read_answers_cookie(request, state, list_id)
    email = None if answers is None else answers.email
    keyring = state.resources.keyring
    return render_list_page(
        "subscribed.html",
        branding.read_look(uow, mailing_list),
        language=get_reader_language(request),
        list_title=mailing_list.title,
        must_confirm=mailing_list.confirm_required,
        owner_text=mailing_list.thanks_text,
        address=email,
        answers=None if answers is None else sealed_answers.seal_answers(keyring, answers),
        mailbox=None if email is None else _find_mailbox(email),
        is_sent_again=again == _SENT,
        is_too_early=again == _EARLY,
    )


@router.post(page_urls.SUBSCRIBED_PATH)
async def answer_button(
    request: Request, state: StateOf, list_id: ListQuery, form: FormOf
) -> Response:
    """The encrypted answers prove that the sign-up form was submitted with this address. Without
    this proof, anyone could bypass the CAPTCHA and trigger mails to other addresses.
    """
    mailing_list = await state.in_unit_of_work(lists.get_list, list_id)
    settings = state.resources.settings
    answers = sealed_answers.open_answers(
        state.resources.keyring,
        form.get("answers", ""),
        list_id,
        sealed_answers.INPUT_LIFETIME,
    )
    form_url = page_urls.sign_up_url(settings, mailing_list.slug)
    if answers is None:
        return redirect_to(form_url)
    if form.get("action") == _CORRECT:
        response = redirect_to(f"{form_url}?{urlencode({_CORRECT: 'yes'})}")
    elif clock.now() - answers.mailed_at < sign_up.MIN_CONFIRMATION_INTERVAL:
        response = redirect_to_query(urlencode({"list": list_id, "again": _EARLY}))
    else:
        repeat_mail = partial(
            sign_up.repeat_confirmation_mail,
            mailing_list=mailing_list,
            email=answers.email,
            ip=client_address(request),
        )
        async with pad_duration():
            await CHANGES_BY_LIST.run(list_id, state.transact, repeat_mail)
        answers = replace(answers, mailed_at=clock.now())
        response = redirect_to_query(urlencode({"list": list_id, "again": _SENT}))
    set_answers_cookie(response, state, answers)
    return response


def _find_mailbox(email: str) -> tuple[str, str] | None:
    """Return the name and URL of a known mail provider. The URL never contains the address."""
    domain = email.rpartition("@")[2].lower()
    for name, (url, domains) in _MAILBOXES.items():
        if domain in domains:
            return name, url
    return None
