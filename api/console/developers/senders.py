"""Pages on which an owner manages senders and sees the senders' reports."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi.responses import Response

from api.console.requests import (
    Console,
    ConsoleForm,
    ConsoleRequest,
    EmptyForm,
    RecentConsole,
    RecentConsoleForm,
    build_router,
)
from api.console.typed_forms import parse_body, read_text
from api.paging import Cursor
from api.record_ids import PathId, parse_id_or_text
from api.schemas import senders as schemas
from api.state import Transaction
from core.errors import DomainError
from integrations.senders import registry
from integrations.senders.port import SenderProvider
from models import Sender, SenderReport
from services.accounts import page_paths
from services.paging import PageRequest
from services.senders import reports, sender_secrets, senders
from services.senders.provider_keys import CREATED_SECRETS, KEY_NAMES
from services.senders.senders import NewSender, SenderFigures
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork

PATH = page_paths.SENDERS_PATH
router = build_router(PATH)

REPORTS_ON_PAGE = 20
_PROVIDER_LABELS = {
    SenderProvider.GENERIC: "Own program",
    SenderProvider.SES: "Amazon SES",
    SenderProvider.POSTMARK: "Postmark",
    SenderProvider.MAILGUN: "Mailgun",
    SenderProvider.SENDGRID: "SendGrid",
    SenderProvider.BREVO: "Brevo",
    SenderProvider.RESEND: "Resend",
}
# The form uses the same field for the keys of all providers.
_KEY_FIELD = "key"


@dataclass(frozen=True)
class SenderView:
    """A sender, formatted for a page.

    Attributes:
        list_titles: the titles of the lists that the sender covers, or ``None`` for all lists of
            the owner.
    """

    sender: Sender
    url: str
    figures: SenderFigures
    list_titles: Sequence[str] | None

    @property
    def provider(self) -> str:
        return _PROVIDER_LABELS[SenderProvider(self.sender.provider)]

    @property
    def can_rotate(self) -> bool:
        return self.sender.provider in CREATED_SECRETS


@dataclass(frozen=True)
class ReportView:
    """A report of a sender, formatted for a page."""

    report: SenderReport

    @property
    def kind(self) -> str:
        names = filter(None, (self.report.code, self.report.kind))
        return " ".join(names) or "unknown"


@router.get("")
def show_senders(console: Console, uow: Transaction) -> Response:
    views = _build_views(uow, console, senders.list_senders(uow, console.user_id))
    return console.render_page("senders.html", senders=views)


@router.get("/new")
def show_new_sender(console: RecentConsole, form: EmptyForm) -> Response:
    with console.unit_of_work() as uow:
        own_lists = lists.list_choices(uow, console.user_id)
    return console.render_form(
        "new_sender.html",
        form.fill({"provider": SenderProvider.GENERIC.value}),
        providers=[(each.value, _PROVIDER_LABELS[each]) for each in registry.list_providers()],
        lists=[("", "All lists"), *((str(each.id), each.title) for each in own_lists)],
    )


@router.post("/new")
def create_sender(console: RecentConsoleForm) -> Response:
    """Create a sender, and show the new secret. Later pages never show the secret again."""
    form = console.form
    list_id = parse_id_or_text(read_text(form, "list_id"))
    provider = form.get("provider", "")
    key_names = {each.value: name for each, name in KEY_NAMES.items()}
    key_name = key_names.get(provider)
    key = read_text(form, _KEY_FIELD)
    values = {
        "name": form.get("name", ""),
        "provider": provider,
        "list_ids": None if list_id is None else [list_id],
        "topic_arn": key if provider == SenderProvider.SES else None,
    }
    if key_name is not None:
        values[key_name] = key
    places = {"sender.key_invalid": _KEY_FIELD, "sender.topic_invalid": _KEY_FIELD}
    try:
        body = parse_body(schemas.NewSender, values)
        new = NewSender(
            name=body.name,
            provider=body.provider,
            list_ids=body.list_ids,
            topic_arn=body.topic_arn,
            keys=body.keys,
        )
        with console.unit_of_work() as uow:
            sender, secret = senders.create_sender(uow, console.caller, new)
            [view] = _build_views(uow, console, [sender])
    except DomainError as error:
        return show_new_sender(console, console.add_error(error, places))
    return _render_secret(console, view, secret, is_new=True)


@router.get("/{sender_id}")
def show_sender(
    console: Console, uow: Transaction, sender_id: PathId, cursor: Cursor = None
) -> Response:
    [view] = _build_views(uow, console, [senders.get_sender(uow, console.caller, sender_id)])
    page = reports.list_reports(
        uow, console.caller, sender_id, page=PageRequest(REPORTS_ON_PAGE, cursor=cursor)
    )
    return console.render_page(
        "sender.html",
        view=view,
        reports=[ReportView(row) for row in page.rows],
        next_cursor=page.next_cursor,
    )


@router.get("/{sender_id}/rotate")
def show_rotation(console: RecentConsole, sender_id: PathId) -> Response:
    return console.render_page("rotate_sender.html", view=_find_view(console, sender_id))


@router.post("/{sender_id}/rotate")
def rotate_secret(console: RecentConsoleForm, sender_id: PathId) -> Response:
    view = _find_view(console, sender_id)
    with console.unit_of_work() as uow:
        secret = senders.rotate_secret(uow, console.caller, sender_id)
    return _render_secret(console, view, secret, is_new=False)


@router.get("/{sender_id}/end")
def show_deletion(console: Console, sender_id: PathId) -> Response:
    return console.render_page("end_sender.html", view=_find_view(console, sender_id))


@router.post("/{sender_id}/end")
def delete_sender(console: ConsoleForm, uow: Transaction, sender_id: PathId) -> Response:
    senders.delete_sender(uow, console.caller, sender_id)
    return console.redirect_with_notice(PATH, "The sender was deleted.")


def _render_secret(
    console: ConsoleRequest, view: SenderView, secret: str | None, *, is_new: bool
) -> Response:
    has_username = view.can_rotate and view.sender.provider != SenderProvider.GENERIC
    return console.render_page(
        "sender_secret.html",
        view=view,
        secret=secret,
        username=sender_secrets.USERNAME if has_username else None,
        is_new=is_new,
    )


def _build_views(
    uow: UnitOfWork, console: ConsoleRequest, rows: Sequence[Sender]
) -> list[SenderView]:
    figures = senders.count_outcomes(uow, [row.id for row in rows])
    titles = lists.read_titles(uow, [list_id for row in rows for list_id in row.list_ids or ()])
    base = console.state.resources.settings.public_base
    return [
        SenderView(
            row,
            senders.build_events_url(base, row.id),
            figures[row.id],
            None if row.list_ids is None else [titles.get(each, "?") for each in row.list_ids],
        )
        for row in rows
    ]


def _find_view(console: ConsoleRequest, sender_id: int) -> SenderView:
    with console.unit_of_work() as uow:
        sender = senders.get_sender(uow, console.caller, sender_id)
        [view] = _build_views(uow, console, [sender])
    return view
