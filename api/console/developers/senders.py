"""Pages on which an owner manages senders and sees the senders' reports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import orjson
from fastapi.responses import Response

from api.console.developers.sender_guides import EXAMPLE_BODY, GUIDES, SenderGuide
from api.console.requests import (
    AccessForm,
    AccessPage,
    ConsoleRequest,
    EmptyForm,
    RecentAccessForm,
    RecentAccessPage,
    build_router,
    shows_errors_on,
    threaded_as_search,
)
from api.console.typed_forms import TypedForm, parse_body, read_text
from api.paging import Cursor
from api.record_ids import PathId, parse_id_or_text
from api.schemas import senders as schemas
from api.state import Transaction
from core import clock
from integrations.senders.port import ReportKind, SenderProvider
from integrations.senders.ses import SIGNATURE_V1_WARNING
from models import ReportOutcome, Sender, SenderReport
from services.accounts import page_paths
from services.paging import PageRequest
from services.senders import report_history, sender_secrets, senders, trials
from services.senders.notices import FAILURE_SENTENCES
from services.senders.report import ReportFacts, describe_report
from services.senders.report_history import ReportedMember
from services.senders.senders import NewSender, SenderChange, SenderFigures
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
# The label and the explanation of an unmatched report about a person who has left the list.
_FORMER_MEMBER = ("No longer a member", "The person had left the list")
_WARNING_SENTENCES: Mapping[str, str] = {
    **{reason.value: sentence for reason, sentence in FAILURE_SENTENCES.items()},
    SIGNATURE_V1_WARNING: (
        "The topic signs its messages with the outdated algorithm SHA-1. Set the signature version "
        "of the topic to 2."
    ),
}
# How long the page of a new sender looks for the first report by itself. Without a limit, a page
# that stays open would keep the session alive.
_MAX_WAIT = timedelta(days=1)
_PROVIDER_FIELD = "provider"
_BODY_FIELD = "body"
# Maps an error code to the form field that shows the error.
_BODY_PLACES = {
    "report.invalid": _BODY_FIELD,
    "report.too_many": _BODY_FIELD,
    "report.trace_id_refused": _BODY_FIELD,
    "body.too_large": _BODY_FIELD,
    "request.too_slow": _BODY_FIELD,
}


@dataclass(frozen=True)
class SenderView:
    """A sender, formatted for a page.

    ``list_titles`` is ``None`` for all lists of the owner. ``is_new``: whether the page looks for
    the first report by itself.
    """

    sender: Sender
    url: str
    figures: SenderFigures
    list_titles: Sequence[str] | None
    is_new: bool

    @property
    def guide(self) -> SenderGuide:
        return GUIDES[SenderProvider(self.sender.provider)]

    @property
    def provider(self) -> str:
        return self.guide.label

    @property
    def is_own_program(self) -> bool:
        return self.sender.provider == SenderProvider.GENERIC

    @property
    def problems(self) -> list[str]:
        """Return one sentence for each problem that the owner should solve."""
        return [_WARNING_SENTENCES[each] for each in self.sender.warnings]


@dataclass(frozen=True)
class ReportView:
    """A report that a sender posted, or that an owner enters in the form "Try a report".

    ``member``: the current or former member, or ``None`` if there is none or the person was erased.
    """

    report: SenderReport | ReportFacts
    member: ReportedMember | None

    @property
    def kind(self) -> str:
        kinds = [each for each in ReportKind if each == self.report.kind]
        label = _KIND_LABELS[kinds[0]] if kinds else self.report.kind
        code = f"({self.report.code})" if self.report.code else None
        return " ".join(filter(None, (label, code))) or "Unknown"

    @property
    def email(self) -> str | None:
        return None if self.member is None else self.member.email

    @property
    def is_about_former_member(self) -> bool:
        is_unmatched = self.report.outcome == ReportOutcome.UNMATCHED
        return is_unmatched and self.member is not None and self.member.has_left

    @property
    def outcome(self) -> str:
        return self._outcome_texts[0]

    @property
    def outcome_reason(self) -> str:
        """Return why the report changed nothing, or an empty string."""
        return self._outcome_texts[1]

    @property
    def _outcome_texts(self) -> tuple[str, str]:
        if self.is_about_former_member:
            return _FORMER_MEMBER
        return _OUTCOMES[ReportOutcome(self.report.outcome)]


@router.get("")
def show_senders(console: AccessPage, uow: Transaction) -> Response:
    views = _build_views(uow, console, senders.list_senders(uow, console.account_id))
    return console.render_page("senders.html", senders=views)


@router.get("/new")
def show_new_sender(console: RecentAccessPage, uow: Transaction, form: EmptyForm) -> Response:
    """Show the providers to choose from, or the steps and the form for the chosen provider."""
    form = form.fill({_PROVIDER_FIELD: console.request.query_params.get(_PROVIDER_FIELD, "")})
    guide = _find_guide(form.typed)
    if guide is None:
        return console.render_page("choose_provider.html", form, guides=GUIDES)
    own_lists = lists.list_choices(uow, console.account_id)
    return console.render_page(
        "new_sender.html",
        form,
        guide=guide,
        lists=[("", "All lists"), *((str(each.id), each.title) for each in own_lists)],
    )


@router.post("/new")
@shows_errors_on(show_new_sender)
def create_sender(console: RecentAccessForm, uow: Transaction) -> Response:
    """Create a sender, and show its secret. No other page ever shows the secret."""
    form = console.form
    list_id = parse_id_or_text(read_text(form, "list_id"))
    values = {
        "name": form.get("name", ""),
        _PROVIDER_FIELD: form.get(_PROVIDER_FIELD, ""),
        "list_ids": None if list_id is None else [list_id],
    }
    guide = _find_guide(form)
    if guide is not None and guide.key is not None:
        values[guide.key.name] = read_text(form, guide.key.name)
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


def _find_guide(typed: Mapping[str, str]) -> SenderGuide | None:
    provider = typed.get(_PROVIDER_FIELD, "")
    return next((guide for each, guide in GUIDES.items() if each == provider), None)


@router.get("/{sender_id}")
def show_sender(
    console: AccessPage, uow: Transaction, sender_id: PathId, cursor: Cursor = None
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
def show_trial(
    console: AccessPage, uow: Transaction, form: EmptyForm, sender_id: PathId
) -> Response:
    view = _find_view(uow, console, sender_id)
    if view.is_own_program:
        example = orjson.dumps(EXAMPLE_BODY, option=orjson.OPT_INDENT_2).decode()
        form = form.fill({_BODY_FIELD: example})
    return _render_trial(console, form, view)


@router.post("/{sender_id}/try")
@threaded_as_search
@shows_errors_on(show_trial, _BODY_PLACES)
def try_body(console: AccessForm, uow: Transaction, sender_id: PathId) -> Response:
    """Show the effects that the reports in a request body would have."""
    view = _find_view(uow, console, sender_id)
    body = parse_body(schemas.SenderTrial, {"body": console.form.get(_BODY_FIELD, "")})
    # The trial opens a transaction of its own.
    uow.roll_back()
    received = trials.run_trial(console.state.resources, view.sender, body.body.encode())
    effects = _build_report_views(uow, console, [describe_report(each) for each in received])
    return _render_trial(console, TypedForm(console.form), view, effects)


@router.get("/{sender_id}/rotate")
def show_rotation(
    console: RecentAccessPage, uow: Transaction, form: EmptyForm, sender_id: PathId
) -> Response:
    return console.render_page("rotate_sender.html", form, view=_find_view(uow, console, sender_id))


@router.post("/{sender_id}/rotate")
@shows_errors_on(show_rotation)
def rotate_secret(console: RecentAccessForm, uow: Transaction, sender_id: PathId) -> Response:
    """Replace the provider's key or topic, or else the secret that Pressroom created."""
    view = _find_view(uow, console, sender_id)
    key = view.guide.key
    if key is None:
        secret = senders.rotate_secret(uow, console.caller, sender_id)
        return _render_secret(console, view, secret, is_new=False)
    body = parse_body(schemas.SenderChange, {key.name: console.form.get(key.name, "").strip()})
    change = SenderChange(topic_arn=body.topic_arn, keys=body.keys)
    senders.change_sender(uow, console.caller, sender_id, change)
    validity = " The former key is valid for 24 hours." if body.keys else ""
    return console.redirect(f"{PATH}/{sender_id}", f"The {key.noun} was replaced.{validity}")


@router.get("/{sender_id}/end")
def show_deletion(console: AccessPage, uow: Transaction, sender_id: PathId) -> Response:
    return console.render_page("end_sender.html", view=_find_view(uow, console, sender_id))


@router.post("/{sender_id}/end")
def delete_sender(console: AccessForm, uow: Transaction, sender_id: PathId) -> Response:
    senders.delete_sender(uow, console.caller, sender_id)
    return console.redirect(PATH, "The sender was deleted.")


def _render_secret(
    console: ConsoleRequest, view: SenderView, secret: str | None, *, is_new: bool
) -> Response:
    has_username = view.guide.key is None and view.sender.provider != SenderProvider.GENERIC
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
            is_new=clock.now() - row.created_at < _MAX_WAIT,
        )
        for row in rows
    ]


def _build_report_views(
    uow: UnitOfWork, console: ConsoleRequest, rows: Iterable[SenderReport | ReportFacts]
) -> list[ReportView]:
    facts = list(rows)
    pairs = {(row.list_id, row.user_id) for row in facts if row.list_id and row.user_id}
    members = report_history.find_members(uow, console.caller, pairs)
    # A page that shows nobody may look for the first report thousands of times.
    if members:
        console.count_members_page(uow)
    return [ReportView(row, members.get((row.list_id, row.user_id))) for row in facts]


def _find_view(uow: UnitOfWork, console: ConsoleRequest, sender_id: int) -> SenderView:
    sender = senders.get_sender(uow, console.caller, sender_id)
    [view] = _build_views(uow, console, [sender])
    return view
