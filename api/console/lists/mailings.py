"""The console pages with a list's mailings, and with the figures and the people of one mailing.

The pages show the events that senders have reported, such as deliveries, bounces and opens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.console_display import format_share
from api.console.lists.growth_page import build_members_query
from api.console.navigation import get_list_path
from api.console.requests import (
    EditForm,
    EmptyForm,
    FiguresPage,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import parse_body, read_text
from api.paging import Cursor
from api.record_ids import ListId, PathId
from api.schemas.mailings import MailingChanges
from api.state import Transaction
from core.settings.notations import Retained
from models import Mailing
from services.paging import PageRequest
from services.subscriptions import mailings
from services.subscriptions.mailings import Issue, Outcome

router = build_router(f"{CONSOLE_PATH}/lists")

MAILINGS_ON_PAGE = 50
# An issue is compared with earlier issues only if there are at least this many.
_MIN_COMPARED_ISSUES = 2
# The filters for the people of a mailing. Deliveries are counted without names.
_FILTERS = {
    Outcome.BOUNCED: "bounced_mailing",
    Outcome.COMPLAINED: "complained_mailing",
    Outcome.LEFT: "left_mailing",
}
_ENGAGEMENT_LABELS = {
    "opened": "opened",
    "machine_opened": "opened by machines",
    "clicked": "clicked",
}
_NOT_RECORDED_TEXT = "When this mailing began, the list recorded nobody’s opens and clicks."
_FEW_MEASURED_TEXT = (
    f"The list recorded opens and clicks of fewer than {mailings.MIN_MEASURED} recipients. The "
    "figures are hidden, because they could show what one person did."
)


@dataclass(frozen=True)
class OutcomeRow:
    """The recipients of an issue with one outcome.

    Attributes:
        share, mean: the share of the recipients, and the mean share of earlier issues.
        query: the query with which the members page shows the people, or an empty string.
    """

    outcome: Outcome
    count: int
    share: str
    mean: str
    query: str


@dataclass(frozen=True)
class IssueEngagement:
    """The numbers of measured recipients who opened or clicked an issue.

    Attributes:
        measured: the number of recipients whose opens and clicks the list recorded.
        figures: the label, the number of people and their share for each kind of event.
        absence: a sentence that explains missing figures, or an empty text.
    """

    measured: int
    figures: list[tuple[str, int, str]]
    absence: str


@router.get("/{list_id}/mailings")
def show_mailings(
    console: FiguresPage, uow: Transaction, list_id: ListId, cursor: Cursor = None
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    page = mailings.list_mailings(
        uow, mailing_list.id, PageRequest(MAILINGS_ON_PAGE, cursor=cursor)
    )
    issues = mailings.describe_mailings(uow, page.rows)
    return console.render_page(
        "mailings.html",
        list=mailing_list,
        mailings=[
            (each, issue, _find_alarms([each]), _describe_engagement(issue))
            for each, issue in zip(page.rows, issues, strict=True)
        ],
        next_cursor=page.next_cursor,
    )


@router.get("/{list_id}/mailings/{mailing_id}")
def show_mailing(
    console: FiguresPage, uow: Transaction, list_id: ListId, mailing_id: PathId, form: EmptyForm
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    mailing = mailings.get_mailing(uow, mailing_list.id, mailing_id)
    issue = mailings.read_issue(uow, mailing)
    earlier_issues = mailings.find_earlier_issues(uow, issue)
    has_comparison = len(earlier_issues) >= _MIN_COMPARED_ISSUES
    return console.render_page(
        "mailing.html",
        form.fill({"label": mailing.label or ""}),
        list=mailing_list,
        mailing=mailing,
        name=mailings.get_name(mailing),
        issue=issue,
        alarms=_find_alarms(issue.mailings),
        outcomes=[_build_row(outcome, issue, earlier_issues) for outcome in Outcome],
        engagement=_describe_engagement(issue),
        compared=len(earlier_issues) if has_comparison else 0,
        blocked=sum(each.blocked for each in issue.mailings),
        days=uow.settings.retention[Retained.BOUNCES],
    )


@router.post("/{list_id}/mailings/{mailing_id}")
@shows_errors_on(show_mailing)
def rename_mailing(
    console: EditForm, uow: Transaction, list_id: ListId, mailing_id: PathId
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    mailing = mailings.get_mailing(uow, mailing_list.id, mailing_id)
    body = parse_body(MailingChanges, {"label": read_text(console.form, "label")})
    mailing.label = body.label
    path = f"{get_list_path(mailing_list.id)}/mailings/{mailing.id}"
    return console.redirect(path, "The name was saved.")


def _find_alarms(rows: Sequence[Mailing]) -> list[Outcome]:
    """Return the outcomes that reach a limit of the alarm in one of the mailings."""
    alarms = []
    if any(mailings.has_many_bounces(each.rows, each.hard_bounced) for each in rows):
        alarms.append(Outcome.BOUNCED)
    if any(mailings.has_many_complaints(each.rows, each.complained) for each in rows):
        alarms.append(Outcome.COMPLAINED)
    return alarms


def _build_row(outcome: Outcome, issue: Issue, earlier_issues: Sequence[Issue]) -> OutcomeRow:
    shares = [each.compute_share(outcome) for each in earlier_issues]
    ids = [each.id for each in issue.mailings]
    return OutcomeRow(
        outcome,
        issue.counts[outcome],
        _format_share(issue.compute_share(outcome)),
        _format_share(sum(shares, Fraction()) / (len(shares) or 1)),
        build_members_query(_FILTERS[outcome], *ids) if outcome in _FILTERS else "",
    )


def _describe_engagement(issue: Issue) -> IssueEngagement:
    rows = [each for each in issue.mailings if mailings.is_measured(each)]
    if not rows:
        is_recorded = any(each.measured for each in issue.mailings)
        return IssueEngagement(0, [], _FEW_MEASURED_TEXT if is_recorded else _NOT_RECORDED_TEXT)
    counts = {name: sum(getattr(each, name) for each in rows) for name in _ENGAGEMENT_LABELS}
    # Several rosters of an issue usually contain the same members, so their sum is too high.
    roster_rows = sum(each.rows for each in issue.mailings) or 1
    measured = sum(each.measured or 0 for each in rows)
    measured = measured * min(issue.recipients, roster_rows) // roster_rows
    measured = max(measured, *counts.values())
    return IssueEngagement(
        measured,
        [
            (_ENGAGEMENT_LABELS[name], count, format_share(count, measured))
            for name, count in counts.items()
        ],
        "",
    )


def _format_share(share: Fraction) -> str:
    return format_share(share.numerator, share.denominator)
