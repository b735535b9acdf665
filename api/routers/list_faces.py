"""What a list shows to readers, for its owner."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.access.requirements import ListEditor, ListReader
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.limits.shares import ACTS_BY_LIST
from api.list_answers import LIST_RULES
from api.openapi import refuses
from api.pages.list_pages import list_page
from api.parameters import ListId, StateOf
from api.readers.answering import SignUpPage, show_form
from api.readers.embedding import embedded_form
from api.schemas.envelope import Envelope, envelope
from api.schemas.lists import EmbeddedForm, ListChanges, ListPreview, PreviewPart
from api.state import State
from core.languages import reader_languages
from core.refusals import mailing as refusals
from models import MailingList
from services.mailing import lists, looks
from services.mailing.subscriptions import mail_urls, mails
from services.people import accounts
from storage.unit_of_work import UnitOfWork

router = APIRouter(tags=["Lists"], route_class=JsonRoute)

Language = Annotated[
    str | None, Query(description="Such as `de`; English where we have no such language")
]


@router.get(
    "/lists/{list_id}/embed",
    responses=refuses(refusals.LIST_NOT_FOUND, refusals.LIST_NOT_OWNER),
)
@RECORDS.threaded
def read_embedded_form(
    state: StateOf, caller: ListReader, list_id: ListId, language: Language = None
) -> Envelope[EmbeddedForm]:
    """The list's sign-up form, to be pasted into a page of any site as plain HTML."""
    with state.resources.unit_of_work() as uow:
        shown = SignUpPage.read(uow, lists.owned(uow, caller, list_id), state.resources.settings)
    chosen = reader_languages.chosen(language or "")
    return envelope(embedded_form(state, shown, language=chosen))


@router.get(
    "/lists/{list_id}/previews/{part}",
    responses=refuses(refusals.LIST_NOT_FOUND, refusals.LIST_NOT_OWNER),
)
@RECORDS.threaded
def preview_list(
    state: StateOf,
    caller: ListReader,
    list_id: ListId,
    part: PreviewPart,
    language: Language = None,
) -> Envelope[ListPreview]:
    """A page or a mail of the list, with its look and words, as readers get it in a language.

    Its links lead nowhere.
    """
    chosen = reader_languages.chosen(language or "")
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        return envelope(_PREVIEWS[part](uow, state, mailing_list, chosen))


@router.post(
    "/lists/{list_id}/previews/{part}",
    responses=refuses(
        refusals.LIST_NOT_FOUND, refusals.LIST_NOT_OWNER, refusals.LIST_BUSY, *LIST_RULES
    ),
)
@ACTS_BY_LIST.threaded("list_id")
def preview_changed_list(
    state: StateOf,
    caller: ListEditor,
    list_id: ListId,
    part: PreviewPart,
    body: ListChanges,
    language: Language = None,
) -> Envelope[ListPreview]:
    """The same as if the list had been changed like this. Nothing is changed."""
    chosen = reader_languages.chosen(language or "")
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        trial = uow.session.begin_nested()
        lists.change(uow, mailing_list, body.sent(), state.challenges.configured)
        shown = _PREVIEWS[part](uow, state, mailing_list, chosen)
        trial.rollback()
    return envelope(shown)


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


_PREVIEWS: dict[PreviewPart, Callable[[UnitOfWork, State, MailingList, str], ListPreview]] = {
    PreviewPart.SIGN_UP: _sign_up,
    PreviewPart.THANKS: _thanks,
    PreviewPart.CONFIRMATION_MAIL: _confirmation_mail,
}
