"""The console page with a list's engagement: whose opens and clicks it records, and the figures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.console_display import format_share
from api.console.lists.growth_page import build_filter_query
from api.console.navigation import get_list_path
from api.console.requests import (
    EditForm,
    EmptyForm,
    FiguresPage,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import parse_body, read_text
from api.limits.keyed_bulkheads import threaded_by_list
from api.record_ids import ListId
from api.schemas.lists import ListChanges
from api.state import Transaction
from models import EngagementMode
from services.engagement import figures
from services.engagement.figures import ActivityKey
from services.subscriptions import lists, page_urls
from services.subscriptions.filters.names import DAYS_AGO, EngagementChoice
from services.subscriptions.members import engagement_choices

router = build_router(f"{CONSOLE_PATH}/lists")

_MODES = (
    (EngagementMode.OFF.value, "Off", "The list records no opens and clicks."),
    (
        EngagementMode.CONSENT.value,
        "With consent",
        "The list records opens and clicks of members who said yes. Sign-up forms ask new members.",
    ),
    (
        EngagementMode.ALL.value,
        "All members",
        "The list records opens and clicks of all members except those who said no.",
    ),
)
_ANSWER_LABELS = {
    EngagementChoice.YES: "Yes",
    EngagementChoice.NO: "No",
    EngagementChoice.NONE: "No answer",
}
_ACTIVITY_LABELS = {
    ActivityKey.DAYS_30: "In the last 30 days",
    ActivityKey.DAYS_90: "31 to 90 days ago",
    ActivityKey.DAYS_180: "91 to 180 days ago",
    ActivityKey.DAYS_365: "181 to 365 days ago",
    ActivityKey.OLDER: "More than 365 days ago",
    ActivityKey.NEVER: "Got mail, but opened and clicked none",
    ActivityKey.UNKNOWN: "Nothing recorded",
}
# The form field with which the owner confirms that data are deleted.
_CONFIRMED = "confirmed"


@dataclass(frozen=True)
class FigureRow:
    """A number of active members. ``query``: the query with which the members page shows them."""

    label: str
    count: int
    share: str
    query: str


@router.get("/{list_id}/engagement")
def show_engagement(
    console: FiguresPage, uow: Transaction, list_id: ListId, form: EmptyForm
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    mode = EngagementMode(mailing_list.engagement)
    counts = None if mode is EngagementMode.OFF else figures.read_figures(uow, mailing_list)
    values = {"engagement": mode.value, "engagement_wording": mailing_list.engagement_wording or ""}
    return console.render_page(
        "list_engagement.html",
        form.fill(values),
        list=mailing_list,
        mode=mode,
        modes=_MODES,
        default_wording=engagement_choices.DEFAULT_WORDING,
        answers=counts
        and _build_rows(
            (
                _ANSWER_LABELS[answer],
                counts.answers[answer],
                {"field": "engagement_choice", "is": answer},
            )
            for answer in EngagementChoice
        ),
        activity=counts
        and _build_rows(
            (_ACTIVITY_LABELS[key], counts.activity[key], _build_activity_filter(key))
            for key in ActivityKey
        ),
        link=f"{console.state.resources.settings.pages_base}{page_urls.ENGAGEMENT_PATH}",
    )


@router.post("/{list_id}/engagement")
@threaded_by_list
@shows_errors_on(show_engagement)
def change_engagement(console: EditForm, uow: Transaction, list_id: ListId) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    form = console.form
    values = {
        "engagement": form.get("engagement"),
        "engagement_wording": read_text(form, "engagement_wording"),
    }
    changes = parse_body(ListChanges, values)
    would_delete = figures.read_figures(uow, mailing_list, changes.engagement).would_delete
    if would_delete and _CONFIRMED not in form:
        return console.render_page(
            "confirm_engagement.html",
            list=mailing_list,
            values={**values, _CONFIRMED: "yes"},
            would_delete=would_delete,
        )
    providers = console.state.challenges.configured
    has_changed = lists.change_list(uow, mailing_list, changes.sent(), providers)
    notice = "The settings were saved." if has_changed else "There were no changes to save."
    return console.redirect(f"{get_list_path(list_id)}/engagement", notice)


def _build_rows(entries: Iterable[tuple[str, int, dict[str, Any]]]) -> list[FigureRow]:
    """Return rows for triples of a label, a number of members and the filter that finds them."""
    entries = [*entries]
    total = sum(count for _, count, _ in entries)
    return [
        FigureRow(label, count, format_share(count, total), build_filter_query(member_filter))
        for label, count, member_filter in entries
    ]


def _build_activity_filter(key: ActivityKey) -> dict[str, Any]:
    """Return the filter that finds the members of a row in the activity table."""
    has_acted = _compare_last_action("exists", value=True)
    is_delivered = {"field": "delivered", "at_least": 1}
    if key is ActivityKey.NEVER:
        return {"all": [is_delivered, {"not": has_acted}]}
    if key is ActivityKey.UNKNOWN:
        return {"not": {"any": [is_delivered, has_acted]}}
    # Each period excludes the members of the next shorter one.
    periods = [each for each in ActivityKey if each.isdigit()]
    keys = [*periods, ActivityKey.OLDER]
    filters = [
        *(_compare_last_action("at_least", value={DAYS_AGO: int(each)}) for each in periods),
        has_acted,
    ]
    place = keys.index(key)
    if place == 0:
        return filters[0]
    return {"all": [filters[place], {"not": filters[place - 1]}]}


def _compare_last_action(operator: str, *, value: object) -> dict[str, Any]:
    names = ("last_opened", "last_clicked")
    return {"any": [{"field": name, operator: value} for name in names]}
