"""The answers to a browser that sent a sign-up form: on it leads, or here is what to correct."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from pydantic import ValidationError

from api.errors import STATUS_OF
from api.pages.audience import reader_language
from api.pages.frame import redirect
from api.pages.list_pages import list_page
from api.readers.sign_up_inputs import problems_of_fields, shown_inputs
from api.readers.submitting import submit
from api.schemas.subscriptions import NewSubscription
from api.state import State
from core.errors import DomainError
from core.languages.reader_languages import marked, translated
from core.refusals import mailing
from core.refusals.attributes import FIELD_VALUE
from core.settings import Settings, origins
from core.settings.origins import PlainUrl
from integrations.challenges.port import ChallengeAction, ChallengeProviderName
from integrations.challenges.widgets import WIDGETS
from models import MailingList, MemberField
from services.mailing import looks
from services.mailing.attributes import fields
from services.mailing.consent import wordings
from services.mailing.looks import Look
from services.mailing.subscriptions.mail_urls import ask_preferences_url, embed_url, subscribed_url
from storage.unit_of_work import UnitOfWork

_NOT_PASSED = marked("The check that you are a person was not passed. Please do it once more.")
_LOOK_AGAIN = marked(
    "We can’t take one of the answers as it is written. Please look at them again."
)
# What the person can put right on the page, in words for them.
_CORRECTABLE = {
    mailing.CHALLENGE_MISSING.code: _NOT_PASSED,
    mailing.CHALLENGE_FAILED.code: _NOT_PASSED,
    mailing.CHALLENGE_PROVIDER_MISMATCH.code: _NOT_PASSED,
    mailing.CHALLENGE_UNAVAILABLE.code: marked(
        "We can’t check at the moment that you are a person. Please try again in a minute."
    ),
    FIELD_VALUE.code: _LOOK_AGAIN,
    mailing.LIST_BUSY.code: marked(
        "We are changing this list just now. Please try again in a minute."
    ),
}
_NO_ADDRESS = marked("Please write your e-mail address.")
_WRONG_ADDRESS = marked("This is no e-mail address that we could send to.")
_LONG_NAME = marked("This name is too long.")
_PLACES = {"name": _LONG_NAME}


@dataclass(frozen=True)
class SignUpPage:
    """What a page of a list's form is made of, beside what a person wrote."""

    mailing_list: MailingList
    # That the owner opened, by their keys.
    public: Mapping[str, MemberField]
    wording: str | None
    look: Look

    @classmethod
    def read(cls, uow: UnitOfWork, mailing_list: MailingList, settings: Settings) -> "SignUpPage":
        public = fields.own(uow, mailing_list.user_id).public().by_key
        wording = wordings.of_lists(uow, [mailing_list]).get(mailing_list.id)
        look = looks.of(uow, settings, mailing_list)
        return cls(mailing_list, public, wording, look)


@dataclass(frozen=True)
class _Correction:
    """What a person is to put right, by inputs and beside them."""

    status: int
    problem: str | None
    by_input: Mapping[str, str]
    headers: Mapping[str, str]


def show_form(
    language: str,
    state: State,
    shown: SignUpPage,
    *,
    written: Mapping[str, Any],
    correction: _Correction | None = None,
) -> Response:
    """The page with the form, empty or with what was written and is to be corrected."""
    settings, mailing_list = state.resources.settings, shown.mailing_list
    url = _allowed_url(state, mailing_list, written)
    problems = correction.by_input if correction else {}
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
        embed_url=embed_url(settings, mailing_list.slug),
        ask_url=ask_preferences_url(settings, mailing_list.slug),
        is_again=correction is not None,
        wording=shown.wording,
        inputs=shown_inputs(language, shown.public.values(), _flat(written), problems),
        problem=correction.problem if correction else None,
        redirect_url=written.get("redirect_url") if url else None,
        **shown_widget(state, mailing_list),
    )
    answer.headers.update(correction.headers if correction else {})
    return answer


async def answer_form(
    request: Request,
    state: State,
    mailing_list: MailingList,
    inputs: dict[str, Any],
    *,
    page_url: str | None = None,
) -> Response:
    """Submit the form, and lead on; for what the person can correct, show it to them again."""
    settings = state.resources.settings
    url = _allowed_url(state, mailing_list, inputs)
    language = reader_language(request)
    shown = await state.in_unit_of_work(
        partial(SignUpPage.read, mailing_list=mailing_list, settings=settings)
    )
    try:
        wanted = NewSubscription.model_validate(_with_widget_token(mailing_list, inputs))
        await submit(
            request,
            state,
            mailing_list,
            wanted,
            is_form=True,
            page_url=page_url,
            language=language,
        )
    except ValidationError as error:
        correction = _of_validation(language, error, inputs)
    except DomainError as error:
        if error.code not in _CORRECTABLE:
            raise
        correction = _of_refusal(language, error, shown)
    else:
        onwards = inputs["redirect_url"] if url else subscribed_url(settings, mailing_list.id)
        return redirect(onwards)
    return show_form(language, state, shown, written=inputs, correction=correction)


def _allowed_url(
    state: State, mailing_list: MailingList, inputs: Mapping[str, Any]
) -> PlainUrl | None:
    """Where the form wants to lead, if the list or the operator allows that origin."""
    back = inputs.get("redirect_url")
    url = origins.read_url(back) if isinstance(back, str) else None
    allowed = {*state.resources.settings.redirect_origins, *mailing_list.redirect_origins}
    return url if url is not None and url.is_of(allowed) else None


def _of_validation(language: str, error: ValidationError, inputs: Mapping[str, Any]) -> _Correction:
    found: dict[str, str] = {}
    for each in error.errors():
        place = str(each["loc"][0])
        if place == "email":
            text = _WRONG_ADDRESS if inputs.get("email") else _NO_ADDRESS
        else:
            text = _PLACES.get(place, _LOOK_AGAIN)
        found.setdefault(place, translated(language, text))
    return _Correction(422, None, found, {})


def _of_refusal(language: str, error: DomainError, shown: SignUpPage) -> _Correction:
    is_of_fields = error.code == FIELD_VALUE.code
    found = problems_of_fields(language, shown.public, error) if is_of_fields else {}
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    problem = translated(language, _CORRECTABLE[error.code])
    return _Correction(STATUS_OF[error.kind], problem, found, headers)


def _flat(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by the names that they have in the form."""
    nested = inputs.get("fields", {})
    return {**inputs, **{f"fields.{key}": value for key, value in nested.items()}}


def _with_widget_token(mailing_list: MailingList, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs, with the token that the widget wrote under the provider's own name."""
    if not mailing_list.challenge_enabled or mailing_list.challenge_provider is None:
        return inputs
    provider = ChallengeProviderName(mailing_list.challenge_provider)
    token = inputs.get(WIDGETS[provider].field)
    if not token or inputs.get("challenge-token"):
        return inputs
    # The provider says itself for which action the widget was shown.
    named = {"challenge-provider": provider.value, "challenge-action": "subscribe"}
    return {**inputs, **named, "challenge-token": token}


def shown_widget(state: State, mailing_list: MailingList) -> dict[str, Any]:
    """What the page needs to show the list's widget; ``widget`` is ``None`` where it has none."""
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
