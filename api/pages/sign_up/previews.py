"""Pages and mails of a list as readers get them in a language, with links to nowhere."""

from api.html.frame import fragment, list_page
from api.pages.sign_up.submission import SignUpPage, show_form, shown_inputs, shown_widget
from api.schemas.lists import EmbeddedForm, ListPreview, PreviewPart
from api.state import State
from models import MailingList
from services.accounts import accounts, email_addresses
from services.subscriptions import branding, page_urls
from services.subscriptions.members import mails
from storage.unit_of_work import UnitOfWork


def preview(
    uow: UnitOfWork, state: State, mailing_list: MailingList, part: PreviewPart, language: str
) -> ListPreview:
    settings, owner = state.resources.settings, accounts.get(uow, mailing_list.user_id)
    if part == PreviewPart.CONFIRMATION_MAIL:
        mail = mails.confirmation_mail(
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
        page = SignUpPage.read(uow, mailing_list, settings)
        shown = show_form(language, state, page, written={})
    else:
        # The page with the owner's thanks.
        confirms = mailing_list.confirm_required
        shown = list_page(
            "confirm.html" if confirms else "subscribed.html",
            branding.read_look(uow, mailing_list),
            language=language,
            list_title=mailing_list.title,
            words=mailing_list.thanks_text,
            is_confirmed=confirms,
            wants_mail=confirms,
            must_confirm=False,
            address=email_addresses.masked(owner.email),
        )
    return ListPreview(html=bytes(shown.body).decode())


def embedded_form(state: State, shown: SignUpPage, *, language: str) -> EmbeddedForm:
    settings, mailing_list = state.resources.settings, shown.mailing_list
    # By its id: the slug of a list may change, and pages with the form stay.
    action = page_urls.submission_url(settings, mailing_list.id)
    html = fragment(
        "embed_form.html",
        language=language,
        action=action,
        inputs=shown_inputs(language, shown.public.values(), {}, {}, shown.required),
        wording=shown.wording,
        **shown_widget(state, mailing_list),
    )
    page_url = page_urls.sign_up_url(settings, mailing_list.slug)
    return EmbeddedForm(html=html, action=action, page_url=page_url)
