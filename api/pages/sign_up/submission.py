"""A sign-up form: its inputs, its submission, and the answers to the browser that sent it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request, Response
from pydantic import ValidationError

from api.errors import STATUS_OF
from api.html.frame import list_page, redirect
from api.html.problems import reader_language
from api.schemas.subscriptions import NewSubscription
from api.state import State
from api.strangers import submit
from core.errors import DomainError, mailing
from core.languages.reader_languages import marked, translated
from core.settings import Settings, origins
from core.settings.origins import PlainUrl
from integrations.challenges.port import (
    ChallengeAction,
    ChallengeProviderName,
)
from integrations.challenges.siteverify import WIDGETS
from models import FieldType, MailingList, MemberField
from services.accounts import accounts, email_addresses
from services.accounts.email_addresses import MAX_ADDRESS_BYTES
from services.subscriptions import branding, lists, member_attributes, page_urls
from services.subscriptions.consent import wordings
from services.subscriptions.fields import MAX_VALUE_CHARACTERS
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class ShownInput:
    """An input, with the text that the person wrote and its error.

    Attributes:
        kind: ``email``, or the type of a field.
        choices: the values to choose from.
        input_type: the type of the ``<input>``, if it is one.
        is_first_problem: whether the page begins here when it is shown again.
    """

    name: str
    label: str
    kind: str
    value: str = ""
    problem: str | None = None
    autocomplete: str = "off"
    choices: tuple[str, ...] = ()
    input_type: str = "text"
    is_first_problem: bool = False
    is_required: bool = False


def shown_inputs(
    language: str,
    fields: Iterable[MemberField],
    written: Mapping[str, Any],
    problems: Mapping[str, str],
    required: Collection[str] = (),
) -> list[ShownInput]:
    """Return inputs for the address, the name, and each of these fields.

    ``written`` and ``problems``: by the names of inputs. ``required``: keys of fields.
    """

    def shown(name: str, label: str, kind: str, **others: Any) -> ShownInput:
        # A longer text was not typed by accident.
        most = MAX_ADDRESS_BYTES if kind == "email" else MAX_VALUE_CHARACTERS
        value, problem = str(written.get(name, ""))[:most], problems.get(name)
        # In an input for a date browsers show nothing else.
        is_as_named = kind == "email" or (kind == FieldType.DATE and not problem)
        input_type = kind if is_as_named else "text"
        return ShownInput(name, label, kind, value, problem, input_type=input_type, **others)

    email, name = translated(language, _EMAIL), translated(language, _NAME)
    inputs = [
        shown("email", email, "email", autocomplete="email", is_required=True),
        shown("name", name, FieldType.TEXT, autocomplete="name"),
    ]
    for each in fields:
        choices, is_required = tuple(each.choices), each.key in required
        name = f"fields.{each.key}"
        inputs.append(shown(name, each.label, each.type, choices=choices, is_required=is_required))
    first = next((each for each in inputs if each.problem), None)
    return [replace(each, is_first_problem=each is first) for each in inputs]


_EMAIL = marked("E-mail address")
_NAME = marked("Name")


def problems_of_fields(
    language: str, public: Mapping[str, MemberField], error: DomainError | None
) -> dict[str, str]:
    """Return the errors of answers, in words for the person, by the names of inputs."""
    found = {}
    for each in error.problems if error else ():
        name = each.field.removeprefix("body.")
        field = public.get(name.removeprefix("fields."))
        text = _NOT_TAKEN if field is None else _BY_TYPE[FieldType(field.type)]
        text = _UNANSWERED if each.code == member_attributes.MISSING else text
        found[name] = translated(language, text)
    return found


_NOT_TAKEN = marked("We can’t take this answer as it is written.")
_UNANSWERED = marked("Please answer this.")
_BY_TYPE = {
    FieldType.TEXT: marked("This is too long."),
    FieldType.NUMBER: marked("Please write a number."),
    FieldType.DATE: marked("Please write a date as year, month and day, such as 2026-11-22."),
    FieldType.BOOLEAN: marked("Please answer with yes or no."),
    FieldType.CHOICE: marked("Please choose one of the answers."),
}

_NOT_PASSED = marked("The check that you are a person was not passed. Please do it once more.")
_LOOK_AGAIN = marked(
    "We can’t take one of the answers as it is written. Please look at them again."
)
# Errors that the person can correct on the page.
_CORRECTABLE = {
    mailing.CHALLENGE_MISSING.code: _NOT_PASSED,
    mailing.CHALLENGE_FAILED.code: _NOT_PASSED,
    mailing.CHALLENGE_PROVIDER_MISMATCH.code: _NOT_PASSED,
    mailing.CHALLENGE_UNAVAILABLE.code: marked(
        "We can’t check at the moment that you are a person. Please try again in a minute."
    ),
    mailing.FIELD_VALUE.code: _LOOK_AGAIN,
    mailing.LIST_BUSY.code: marked(
        "We are changing this list just now. Please try again in a minute."
    ),
}
NO_ADDRESS = marked("Please write your e-mail address.")
_WRONG_ADDRESS = marked("This is no e-mail address that we could send to.")
_LONG_NAME = marked("This name is too long.")


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
        wording = wordings.current_wordings(uow, [mailing_list]).get(mailing_list.id)
        look = branding.read_look(uow, mailing_list)
        owner = email_addresses.masked(accounts.get(uow, mailing_list.user_id).email)
        return cls(mailing_list, public, wording, look, owner, required)


@dataclass(frozen=True)
class _Correction:
    """The errors that a person can correct, by inputs and of the form as a whole."""

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
    settings, mailing_list = state.resources.settings, shown.mailing_list
    url = _allowed_url(state, mailing_list, written)
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


def find_list(uow: UnitOfWork, name: str, *, archived: bool = False) -> MailingList:
    """Return the list; raises ``list.not_found``, for a word that is no slug too."""
    try:
        return lists.get_named(uow, name, archived=archived)
    except DomainError as error:
        if error.code != mailing.LIST_NAME_INVALID.code:
            raise
        raise mailing.LIST_NOT_FOUND() from None


async def answer_form(
    request: Request,
    state: State,
    mailing_list: MailingList,
    inputs: dict[str, Any],
    *,
    page_url: str | None = None,
) -> Response:
    """Submit the form and redirect; with errors that the person can correct, show it again."""
    settings = state.resources.settings
    url = _allowed_url(state, mailing_list, inputs)
    language = reader_language(request)
    shown = await state.in_unit_of_work(SignUpPage.read, mailing_list, settings)
    try:
        wanted = NewSubscription.model_validate(_with_widget_token(mailing_list, inputs))
        await submit(
            request, state, mailing_list, wanted, is_form=True, page_url=page_url, language=language
        )
    except ValidationError as error:
        correction = _of_validation(language, error, inputs)
    except DomainError as error:
        if error.code not in _CORRECTABLE:
            raise
        correction = _of_error(language, error, shown)
    else:
        thanks = page_urls.subscribed_url(settings, mailing_list.id)
        return redirect(inputs["redirect_url"] if url else thanks)
    return show_form(language, state, shown, written=inputs, correction=correction)


def _allowed_url(
    state: State, mailing_list: MailingList, inputs: Mapping[str, Any]
) -> PlainUrl | None:
    """Return the URL to which the form redirects, if the list or the operator allows it."""
    back = inputs.get("redirect_url")
    url = origins.read_url(back) if isinstance(back, str) else None
    allowed = {*state.resources.settings.redirect_origins, *mailing_list.redirect_origins}
    return url if url is not None and url.is_of(allowed) else None


def _of_validation(language: str, error: ValidationError, inputs: Mapping[str, Any]) -> _Correction:
    texts = {
        "email": _WRONG_ADDRESS if inputs.get("email") else NO_ADDRESS,
        "name": _LONG_NAME,
    }
    places = [str(each["loc"][0]) for each in error.errors()]
    found = {place: translated(language, texts.get(place, _LOOK_AGAIN)) for place in places}
    return _Correction(422, None, found, {})


def _of_error(language: str, error: DomainError, shown: SignUpPage) -> _Correction:
    is_of_fields = error.code == mailing.FIELD_VALUE.code
    found = problems_of_fields(language, shown.public, error) if is_of_fields else {}
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    problem = translated(language, _CORRECTABLE[error.code])
    return _Correction(STATUS_OF[error.kind], problem, found, headers)


def _with_widget_token(mailing_list: MailingList, inputs: dict[str, Any]) -> dict[str, Any]:
    if not mailing_list.challenge_enabled or mailing_list.challenge_provider is None:
        return inputs
    provider = ChallengeProviderName(mailing_list.challenge_provider)
    token = inputs.get(WIDGETS[provider].field)
    if not token or inputs.get("challenge-token"):
        return inputs
    # The provider itself says for which action the widget was shown.
    named = {"challenge-provider": provider.value, "challenge-action": "subscribe"}
    return {**inputs, **named, "challenge-token": token}


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
