"""Renders the page with the sign-up form of a list."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from api.html.frame import render_list_page
from api.sign_up.inputs import build_inputs
from api.state import State
from integrations.challenges.port import ChallengeAction, ChallengeProviderName
from integrations.challenges.siteverify import WIDGETS
from models import MailingList, MemberField
from services.accounts import accounts, email_addresses
from services.subscriptions import branding, page_urls, redirects
from services.subscriptions.consent import wordings
from services.subscriptions.members.engagement_choices import get_wording
from services.subscriptions.sign_up_fields import read_sign_up_fields
from services.subscriptions.sign_up_origins import clean_origin
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class ListForm:
    """The data for the sign-up form of a list.

    Attributes:
        wording: the text to which a person consents by signing up, or ``None``.
        masked_owner: the list owner's e-mail address, shortened to the first letter and the domain.
    """

    mailing_list: MailingList
    fields: Mapping[str, MemberField]
    required_keys: frozenset[str]
    wording: str | None
    look: branding.Look
    masked_owner: str

    @classmethod
    def read(cls, uow: UnitOfWork, mailing_list: MailingList) -> "ListForm":
        sign_up_fields = read_sign_up_fields(uow, mailing_list)
        owner = accounts.get_owner(uow, mailing_list.user_id)
        return cls(
            mailing_list,
            fields={entry.field.key: entry.field for entry in sign_up_fields},
            required_keys=frozenset(
                entry.field.key for entry in sign_up_fields if entry.is_required
            ),
            wording=wordings.read_current_wordings(uow, [mailing_list]).get(mailing_list.id),
            look=branding.read_look(uow, mailing_list),
            masked_owner=email_addresses.mask_address(owner.email),
        )


@dataclass(frozen=True)
class FormErrors:
    """Errors in a submitted sign-up form that the user can correct.

    The keys of ``by_input`` are the names of inputs. ``message`` is about the whole form.
    """

    status: int
    message: str | None
    by_input: Mapping[str, str]
    headers: Mapping[str, str]


def render_form(
    language: str,
    state: State,
    form: ListForm,
    *,
    values: Mapping[str, Any],
    errors: FormErrors | None = None,
) -> Response:
    """Show ``values``: the values from ``nest_inputs``, and the origin of the sign-up."""
    settings = state.resources.settings
    mailing_list = form.mailing_list
    redirect_url = find_redirect_url(state, mailing_list, values)
    flat_values = {f"fields.{key}": value for key, value in values.get("fields", {}).items()}
    inputs = build_inputs(
        language,
        form.fields.values(),
        {**values, **flat_values},
        errors.by_input if errors else {},
        form.required_keys,
    )
    response = render_list_page(
        "sign_up.html",
        form.look,
        language=language,
        status=errors.status if errors else 200,
        form_targets=allow_redirects(redirect_url),
        list_title=mailing_list.title,
        page_url=page_urls.sign_up_url(settings, mailing_list.slug),
        picture_url=form.look.logo_url or mailing_list.avatar_image_url,
        owner_text=mailing_list.sign_up_text or mailing_list.tagline,
        owner=form.masked_owner,
        report_url=page_urls.report_page_url(settings, mailing_list.slug),
        ask_url=page_urls.ask_preferences_url(settings, mailing_list.slug),
        is_again=errors is not None,
        wording=form.wording,
        mode=mailing_list.engagement,
        question=get_wording(mailing_list, language),
        is_agreed=values.get("engagement") == "yes",
        inputs=inputs,
        problem=errors.message if errors else None,
        redirect_url=redirect_url,
        origin=clean_origin(values),
        **build_widget_values(state, mailing_list),
    )
    response.headers.update(errors.headers if errors else {})
    return response


def find_redirect_url(
    state: State, mailing_list: MailingList, inputs: Mapping[str, Any]
) -> str | None:
    """Return the ``redirect_url`` if the list or the operator allows its origin."""
    text = inputs.get("redirect_url")
    settings = state.resources.settings
    is_allowed = isinstance(text, str) and redirects.is_allowed(settings, mailing_list, text)
    return text if is_allowed else None


def allow_redirects(url: str | None) -> str:
    """Allow every host, because the owner's site may redirect to another host. Browsers check each
    redirect after a submitted form against the Content-Security-Policy.
    """
    return "" if url is None else f"{url.partition(':')[0].lower()}:"


def build_widget_values(state: State, mailing_list: MailingList) -> dict[str, Any]:
    """``widget`` is ``None`` if the list has no challenge or its challenge provider isn't
    configured.
    """
    name = mailing_list.challenge_provider
    if not mailing_list.challenge_enabled or name not in state.challenges.configured:
        return {"widget": None}
    provider = ChallengeProviderName(name)
    widget = WIDGETS[provider]
    return {
        "widget": widget,
        "other_sources": widget.policy,
        "site_key": state.challenges.challenge_for(provider).site_key,
        "action_name": ChallengeAction.SUBSCRIBE,
    }
