"""Pages and mails of a list as readers get them in a language. Their links lead nowhere."""

from collections.abc import Callable

from fastapi.responses import Response

from api.pages.list_pages import list_page
from api.readers.answering import SignUpPage, show_form
from api.schemas.lists import ListPreview, PreviewPart
from api.state import State
from models import MailingList
from services.mailing import looks
from services.mailing.subscriptions import mail_urls, mails
from services.people import accounts
from storage.unit_of_work import UnitOfWork


def preview(
    uow: UnitOfWork, state: State, mailing_list: MailingList, part: PreviewPart, language: str
) -> ListPreview:
    """This part of the list, with its look and words."""
    return _PARTS[part](uow, state, mailing_list, language)


def _sign_up(
    uow: UnitOfWork, state: State, mailing_list: MailingList, language: str
) -> ListPreview:
    shown = SignUpPage.read(uow, mailing_list, state.resources.settings)
    return ListPreview(html=_text(show_form(language, state, shown, written={})))


def _thanks(uow: UnitOfWork, state: State, mailing_list: MailingList, language: str) -> ListPreview:
    shown = list_page(
        "subscribed.html",
        looks.of(uow, state.resources.settings, mailing_list),
        language=language,
        list_title=mailing_list.title,
        must_confirm=mailing_list.confirm_required,
        words=mailing_list.thanks_text,
    )
    return ListPreview(html=_text(shown))


def _confirmation_mail(
    uow: UnitOfWork, state: State, mailing_list: MailingList, language: str
) -> ListPreview:
    settings, owner = state.resources.settings, accounts.get(uow, mailing_list.user_id)
    mail = mails.confirmation_mail(
        mailing_list,
        owner,
        to=owner.email,
        key="preview",
        language=language,
        url=mail_urls.confirm_url(settings, "preview"),
        report_url=mail_urls.report_url(settings, "preview"),
    )
    return ListPreview(
        html=mail.html, subject=mail.subject, text=mail.text, sender_name=mail.sender_name
    )


def _text(shown: Response) -> str:
    return bytes(shown.body).decode()


_PARTS: dict[PreviewPart, Callable[[UnitOfWork, State, MailingList, str], ListPreview]] = {
    PreviewPart.SIGN_UP: _sign_up,
    PreviewPart.THANKS: _thanks,
    PreviewPart.CONFIRMATION_MAIL: _confirmation_mail,
}
