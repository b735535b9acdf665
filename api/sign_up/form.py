"""The page with the sign-up form of a list."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from api.html.frame import list_page
from api.sign_up.inputs import shown_inputs
from api.state import State
from core.errors import DomainError, mailing
from core.settings import Settings, origins
from core.settings.origins import PlainUrl
from integrations.challenges.port import ChallengeAction, ChallengeProviderName
from integrations.challenges.siteverify import WIDGETS
from models import MailingList, MemberField
from services.accounts import accounts, email_addresses
from services.subscriptions import branding, consent, lists, page_urls
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class SignUpPage:
    """The data of the page of a list's form.

    Attributes:
        public: the fields that the form asks for, by their keys.
        required: the keys of those that need an answer.
        owner: the owner's address; only its domain is whole.
    """

    mailing_list: MailingList
    public: Mapping[str, MemberField]
    wording: str | None
    look: branding.Look
    owner: str
    required: frozenset[str] = frozenset()

    @classmethod
    def read(cls, uow: UnitOfWork, mailing_list: MailingList, settings: Settings) -> "SignUpPage":
        asked = lists.sign_up_fields(uow, mailing_list)
        public = {each.field.key: each.field for each in asked}
        required = frozenset(each.field.key for each in asked if each.is_required)
        wording = consent.of_lists(uow, [mailing_list]).get(mailing_list.id)
        look = branding.of(uow, mailing_list)
        owner = email_addresses.masked(accounts.get(uow, mailing_list.user_id).email)
        return cls(mailing_list, public, wording, look, owner, required)


@dataclass(frozen=True)
class Correction:
    """The errors that a person can correct, by inputs and of the form as a whole."""

    status: int
    problem: str | None
    by_input: Mapping[str, str]
    headers: Mapping[str, str]


def find_list(uow: UnitOfWork, name: str, *, archived: bool = False) -> MailingList:
    """Return the list; raises ``list.not_found``, for a word that is no slug too."""
    try:
        return lists.get_named(uow, name, archived=archived)
    except DomainError as error:
        if error.code != mailing.LIST_NAME_INVALID.code:
            raise
        raise mailing.LIST_NOT_FOUND() from None


def show_form(
    language: str,
    state: State,
    shown: SignUpPage,
    *,
    written: Mapping[str, Any],
    correction: Correction | None = None,
) -> Response:
    settings, mailing_list = state.resources.settings, shown.mailing_list
    url = allowed_url(state, mailing_list, written)
    problems = correction.by_input if correction else {}
    nested = written.get("fields", {})
    flat = {**written, **{f"fields.{key}": value for key, value in nested.items()}}
    answer = list_page(
        "sign_up.html",
        shown.look,
        language=language,
        status=correction.status if correction else 200,
        # Browsers hold all redirects that follow on the form to this, also those of the owner's own
        # site; so the scheme is named, and not the origin.
        form_targets=f"{url.origin.partition(':')[0]}:" if url else "",
        list_title=mailing_list.title,
        words=mailing_list.sign_up_text or mailing_list.tagline,
        owner=shown.owner,
        report_url=page_urls.report_page_url(settings, mailing_list.slug),
        ask_url=page_urls.ask_preferences_url(settings, mailing_list.slug),
        is_again=correction is not None,
        wording=shown.wording,
        inputs=shown_inputs(language, shown.public.values(), flat, problems, shown.required),
        problem=correction.problem if correction else None,
        redirect_url=written.get("redirect_url") if url else None,
        **shown_widget(state, mailing_list),
    )
    answer.headers.update(correction.headers if correction else {})
    return answer


def allowed_url(
    state: State, mailing_list: MailingList, inputs: Mapping[str, Any]
) -> PlainUrl | None:
    """Return the URL to which the form redirects, if the list or the operator allows it."""
    back = inputs.get("redirect_url")
    url = origins.read_url(back) if isinstance(back, str) else None
    allowed = {*state.resources.settings.redirect_origins, *mailing_list.redirect_origins}
    return url if url is not None and url.is_of(allowed) else None


def shown_widget(state: State, mailing_list: MailingList) -> dict[str, Any]:
    """Return the values with which the page shows the list's widget; ``widget`` may be ``None``."""
    name = mailing_list.challenge_provider
    if not mailing_list.challenge_enabled or name not in state.challenges.configured:
        return {"widget": None}
    provider = ChallengeProviderName(name)
    widget, site_key = WIDGETS[provider], state.challenges.challenge_for(provider).site_key
    return {
        "widget": widget,
        "foreign": widget.policy,
        "site_key": site_key,
        "action_name": ChallengeAction.SUBSCRIBE,
    }
