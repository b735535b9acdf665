"""Pages on which an owner manages senders and sees the senders' reports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson
from fastapi.responses import Response

from api.console.requests import (
    Console,
    ConsoleForm,
    ConsoleRequest,
    EmptyForm,
    RecentConsole,
    RecentConsoleForm,
    build_router,
    shows_errors_on,
    threaded_as_search,
)
from api.console.typed_forms import TypedForm, parse_body, read_text
from api.paging import Cursor
from api.record_ids import PathId, parse_id_or_text
from api.schemas import senders as schemas
from api.state import Transaction
from integrations.senders.port import ReportKind, SenderProvider
from integrations.senders.ses import SIGNATURE_V1_WARNING
from models import ReportOutcome, Sender, SenderReport
from services.accounts import page_paths
from services.paging import PageRequest
from services.senders import report_history, sender_secrets, senders, trials
from services.senders.notices import FAILURE_SENTENCES
from services.senders.provider_keys import CREATED_SECRETS, KEY_NAMES
from services.senders.report import ReportFacts, describe_report
from services.senders.senders import NewSender, SenderFigures
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork

PATH = page_paths.SENDERS_PATH
router = build_router(PATH)

REPORTS_ON_PAGE = 20
_KIND_FIELD = "kind"
_KIND_LABELS = {
    ReportKind.DELIVERED: "Delivered",
    ReportKind.BOUNCED: "Bounced",
    ReportKind.COMPLAINED: "Complaint",
    ReportKind.UNSUBSCRIBED: "Unsubscribed",
    ReportKind.OPENED: "Opened",
    ReportKind.CLICKED: "Clicked",
}
_KIND_CHOICES = (
    ("", "All reports"),
    (ReportKind.BOUNCED.value, "Bounces"),
    (ReportKind.COMPLAINED.value, "Complaints"),
    (ReportKind.UNSUBSCRIBED.value, "Unsubscriptions"),
    (ReportKind.DELIVERED.value, "Deliveries"),
)
# Maps the outcome of a report to its label and its explanation.
_OUTCOMES = {
    ReportOutcome.APPLIED: ("Recorded", ""),
    ReportOutcome.DUPLICATE: ("Repeated", "Pressroom already had this report"),
    ReportOutcome.STALE: ("Outdated", "The member has changed since then"),
    ReportOutcome.LATE: ("Too late", "The mailing began more than 30 days ago"),
    ReportOutcome.OFF: ("Not recorded", "Pressroom doesn’t record opens and clicks"),
    ReportOutcome.IGNORED: ("Not needed", "Pressroom ignores this type of report"),
    ReportOutcome.UNMATCHED: ("No member found", "The report fits no member of your lists"),
    ReportOutcome.INVALID: ("Unreadable", "Pressroom can’t read this report"),
}
_PROVIDER_LABELS = {
    SenderProvider.GENERIC: "Your own program",
    SenderProvider.SES: "Amazon SES",
    SenderProvider.POSTMARK: "Postmark",
    SenderProvider.MAILGUN: "Mailgun",
    SenderProvider.SENDGRID: "SendGrid",
    SenderProvider.BREVO: "Brevo",
    SenderProvider.RESEND: "Resend",
}
_WARNING_SENTENCES: Mapping[str, str] = {
    **{reason.value: sentence for reason, sentence in FAILURE_SENTENCES.items()},
    SIGNATURE_V1_WARNING: (
        "The topic signs its messages with the outdated algorithm SHA-1. Set the signature version "
        "of the topic to 2."
    ),
}
# The form field for a provider's key has the same name for all providers.
_KEY_FIELD = "key"
_BODY_FIELD = "body"
# The example in the form "Try a report", which shows the effects that a report would have. The
# e-mail address in the example belongs to no member.
_BODY_EXAMPLE = {
    "type": "delivery.reports",
    "timestamp": "2026-11-29T12:00:00Z",
    "data": {
        "reports": [
            {
                "kind": "bounced",
                "email": "reader@example.com",
                "occurred_at": "2026-11-29T11:59:58Z",
                "bounce": {"class": "hard", "status": "5.1.1"},
            }
        ]
    },
}
# Maps an error code to the form field that shows the error.
_KEY_PLACES = {"sender.key_invalid": _KEY_FIELD, "sender.topic_invalid": _KEY_FIELD}
_BODY_PLACES = {
    "report.invalid": _BODY_FIELD,
    "report.too_many": _BODY_FIELD,
    "report.trace_id_refused": _BODY_FIELD,
    "body.too_large": _BODY_FIELD,
    "request.too_slow": _BODY_FIELD,
}


@dataclass(frozen=True)
class SenderView:
    """A sender, formatted for a page. ``list_titles`` is ``None`` for all lists of the owner."""

    sender: Sender
    url: str
    figures: SenderFigures
    list_titles: Sequence[str] | None

    @property
    def provider(self) -> str:
        return _PROVIDER_LABELS[SenderProvider(self.sender.provider)]

    @property
    def is_own_program(self) -> bool:
        return self.sender.provider == SenderProvider.GENERIC

    @property
    def problems(self) -> list[str]:
        """Return one sentence for each problem that the owner should solve."""
        return [_WARNING_SENTENCES[each] for each in self.sender.warnings]

    @property
    def can_rotate(self) -> bool:
        return self.sender.provider in CREATED_SECRETS


@dataclass(frozen=True)
class ReportView:
    """A report that a sender posted, or that an owner enters in the form "Try a report".

    ``email``: the member's address, or ``None`` if the report isn't about a member of the owner's
    lists.
    """

    report: SenderReport | ReportFacts
    email: str | None

    @property
    def kind(self) -> str:
        kinds = [each for each in ReportKind if each == self.report.kind]
        label = _KIND_LABELS[kinds[0]] if kinds else self.report.kind
        code = f"({self.report.code})" if self.report.code else None
        return " ".join(filter(None, (label, code))) or "Unknown"

    @property
    def outcome(self) -> str:
        return _OUTCOMES[ReportOutcome(self.report.outcome)][0]

    @property
    def outcome_reason(self) -> str:
        """Return why the report changed nothing, or an empty string."""
        return _OUTCOMES[ReportOutcome(self.report.outcome)][1]


@router.get("")
def show_senders(console: Console, uow: Transaction) -> Response:
    views = _build_views(uow, console, senders.list_senders(uow, console.user_id))
    return console.render_page("senders.html", senders=views)


@router.get("/new")
def show_new_sender(console: RecentConsole, uow: Transaction, form: EmptyForm) -> Response:
    own_lists = lists.list_choices(uow, console.user_id)
    return console.render_page(
        "new_sender.html",
        form.fill({"provider": SenderProvider.GENERIC.value}),
        providers=[(each.value, label) for each, label in _PROVIDER_LABELS.items()],
        lists=[("", "All lists"), *((str(each.id), each.title) for each in own_lists)],
    )


@router.post("/new")
@shows_errors_on(show_new_sender, _KEY_PLACES)
def create_sender(console: RecentConsoleForm, uow: Transaction) -> Response:
    """Create a sender, and show its secret. No other page ever shows the secret."""
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
    body = parse_body(schemas.NewSender, values)
    new = NewSender(
        name=body.name,
        provider=body.provider,
        list_ids=body.list_ids,
        topic_arn=body.topic_arn,
        keys=body.keys,
    )
    sender, secret = senders.create_sender(uow, console.caller, new)
    [view] = _build_views(uow, console, [sender])
    return _render_secret(console, view, secret, is_new=True)


@router.get("/{sender_id}")
def show_sender(
    console: Console, uow: Transaction, sender_id: PathId, cursor: Cursor = None
) -> Response:
    view = _find_view(uow, console, sender_id)
    selected_kind = console.request.query_params.get(_KIND_FIELD, "")
    kind = next((each for each in ReportKind if each == selected_kind), None)
    page = report_history.list_reports(
        uow,
        console.caller,
        sender_id,
        page=PageRequest(REPORTS_ON_PAGE, cursor=cursor),
        kind=kind,
    )
    return console.render_page(
        "sender.html",
        TypedForm({_KIND_FIELD: kind.value} if kind else {}),
        view=view,
        kinds=_KIND_CHOICES,
        outcomes=[
            (*_OUTCOMES[ReportOutcome(outcome)], count)
            for outcome, count in view.figures.outcomes.items()
        ],
        reports=_build_report_views(uow, console, page.rows),
        next_cursor=page.next_cursor,
    )


@router.get("/{sender_id}/try")
def show_trial(console: Console, uow: Transaction, form: EmptyForm, sender_id: PathId) -> Response:
    view = _find_view(uow, console, sender_id)
    if view.is_own_program:
        example = orjson.dumps(_BODY_EXAMPLE, option=orjson.OPT_INDENT_2).decode()
        form = form.fill({_BODY_FIELD: example})
    return _render_trial(console, form, view)


@router.post("/{sender_id}/try")
@threaded_as_search
@shows_errors_on(show_trial, _BODY_PLACES)
def try_body(console: ConsoleForm, uow: Transaction, sender_id: PathId) -> Response:
    """Show the effects that the reports in a request body would have."""
    view = _find_view(uow, console, sender_id)
    body = parse_body(schemas.SenderTrial, {"body": console.form.get(_BODY_FIELD, "")})
    # The trial opens a transaction of its own.
    uow.roll_back()
    received = trials.run_trial(console.state.resources, view.sender, body.body.encode())
    effects = _build_report_views(uow, console, [describe_report(each) for each in received])
    return _render_trial(console, TypedForm(console.form), view, effects)


@router.get("/{sender_id}/rotate")
def show_rotation(console: RecentConsole, uow: Transaction, sender_id: PathId) -> Response:
    return console.render_page("rotate_sender.html", view=_find_view(uow, console, sender_id))


@router.post("/{sender_id}/rotate")
def rotate_secret(console: RecentConsoleForm, uow: Transaction, sender_id: PathId) -> Response:
    view = _find_view(uow, console, sender_id)
    secret = senders.rotate_secret(uow, console.caller, sender_id)
    return _render_secret(console, view, secret, is_new=False)


@router.get("/{sender_id}/end")
def show_deletion(console: Console, uow: Transaction, sender_id: PathId) -> Response:
    return console.render_page("end_sender.html", view=_find_view(uow, console, sender_id))


@router.post("/{sender_id}/end")
def delete_sender(console: ConsoleForm, uow: Transaction, sender_id: PathId) -> Response:
    senders.delete_sender(uow, console.caller, sender_id)
    return console.redirect(PATH, "The sender was deleted.")


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


def _render_trial(
    console: ConsoleRequest,
    form: TypedForm,
    view: SenderView,
    effects: Sequence[ReportView] | None = None,
) -> Response:
    return console.render_page("try_sender.html", form, view=view, effects=effects)


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


def _build_report_views(
    uow: UnitOfWork, console: ConsoleRequest, rows: Iterable[SenderReport | ReportFacts]
) -> list[ReportView]:
    facts = list(rows)
    members = {(row.list_id, row.user_id) for row in facts if row.list_id and row.user_id}
    emails = report_history.read_addresses(uow, console.caller, members)
    console.count_members_page(uow)
    return [ReportView(row, emails.get((row.list_id, row.user_id))) for row in facts]


def _find_view(uow: UnitOfWork, console: ConsoleRequest, sender_id: int) -> SenderView:
    sender = senders.get_sender(uow, console.caller, sender_id)
    [view] = _build_views(uow, console, [sender])
    return view
