"""Renders previews of a list's sign-up pages and confirmation mail.

Links in a previewed mail contain an invalid token, so that clicking a link changes nothing.
"""

from importlib.resources import files

from api.html.frame import render_fragment, render_list_page
from api.schemas.lists import EmbeddedForm, ListPreview, PreviewPart
from api.sign_up.form import ListForm, build_widget_values, render_form
from api.sign_up.inputs import build_inputs
from api.state import State
from models import MailingList
from services.accounts import accounts, email_addresses
from services.subscriptions import branding, page_urls
from services.subscriptions.members import mails
from services.subscriptions.members.engagement_choices import get_wording
from services.subscriptions.sign_up_origins import ORIGIN_NAMES
from storage.unit_of_work import UnitOfWork

_ORIGIN_SCRIPT = files(__package__).joinpath("embed_origin.js").read_text().strip()


def render_preview(
    uow: UnitOfWork, state: State, mailing_list: MailingList, part: PreviewPart, language: str
) -> ListPreview:
    settings = state.resources.settings
    owner = accounts.get_owner(uow, mailing_list.user_id)
    if part == PreviewPart.CONFIRMATION_MAIL:
        mail = mails.render_confirmation_mail(
            uow,
            mailing_list,
            owner,
            to=owner.email,
            key="preview",
            language=language,
            url=page_urls.confirm_url(settings, "preview"),
            report_url=page_urls.report_url(settings, "preview"),
        )
        return ListPreview(
            html=mail.html, subject=mail.subject, text=mail.text, sender_name=mail.sender_name
        )
    if part == PreviewPart.SIGN_UP:
        form = ListForm.read(uow, mailing_list)
        page = render_form(language, state, form, values={})
    else:
        # Preview the last page of the sign-up, which shows the owner's thank-you text. If the list
        # requires confirmation, the thank-you text appears only after the person has confirmed.
        must_confirm = mailing_list.confirm_required
        page = render_list_page(
            "confirm.html" if must_confirm else "subscribed.html",
            branding.read_look(uow, mailing_list),
            language=language,
            list_title=mailing_list.title,
            owner_text=mailing_list.thanks_text,
            is_confirmed=must_confirm,
            wants_mail=must_confirm,
            must_confirm=False,
            address=email_addresses.mask_address(owner.email),
            list_url=page_urls.sign_up_url(settings, mailing_list.slug) if must_confirm else None,
            site_url=None,
            answers=None,
            mailbox=None,
            is_sent_again=False,
            is_too_early=False,
        )
    return ListPreview(html=bytes(page.body).decode())


def render_embedded_form(
    state: State, form: ListForm, *, language: str, has_origin_script: bool = False
) -> EmbeddedForm:
    """Return the HTML code that embeds the sign-up form in another website."""
    settings = state.resources.settings
    mailing_list = form.mailing_list
    # Use the list's id in the URL, because the slug may change.
    action = page_urls.submission_url(settings, mailing_list.id)
    html = render_fragment(
        "embed_form.html",
        language=language,
        action=action,
        inputs=build_inputs(language, form.fields.values(), {}, {}, form.required_keys),
        wording=form.wording,
        mode=mailing_list.engagement,
        question=get_wording(mailing_list, language),
        origin_names=ORIGIN_NAMES if has_origin_script else (),
        origin_script=_ORIGIN_SCRIPT,
        **build_widget_values(state, mailing_list),
    )
    page_url = page_urls.sign_up_url(settings, mailing_list.slug)
    return EmbeddedForm(html=html, action=action, page_url=page_url)
