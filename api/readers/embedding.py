"""The sign-up form of a list as HTML that its owner pastes into a page of another site."""

from api.pages.frame import fragment
from api.readers.answering import SignUpPage, shown_widget
from api.readers.sign_up_inputs import shown_inputs
from api.schemas.lists import EmbeddedForm
from api.state import State
from services.mailing.subscriptions.mail_urls import sign_up_url, submission_url


def embedded_form(
    state: State, shown: SignUpPage, *, language: str, redirect_url: str | None = None
) -> EmbeddedForm:
    settings, mailing_list = state.resources.settings, shown.mailing_list
    # By its id: the slug of a list may change, and pages with the form stay.
    action = submission_url(settings, mailing_list.id)
    html = fragment(
        "embed_form.html",
        language=language,
        action=action,
        inputs=shown_inputs(language, shown.public.values(), {}, {}),
        wording=shown.wording,
        redirect_url=redirect_url,
        **shown_widget(state, mailing_list),
    )
    page_url = sign_up_url(settings, mailing_list.slug)
    return EmbeddedForm(html=html, action=action, page_url=page_url)
