"""Shows and reads how an owner watches a segment, and lists the changes of a watched segment."""

from dataclasses import replace
from typing import Any

from fastapi.responses import Response

from api.bodies.page_forms import FormFields
from api.console.assets import CONSOLE_PATH
from api.console.members.forms import EXACT_COUNT, MemberCount, count_selection
from api.console.requests import (
    ConsoleRequest,
    MembersPage,
    build_router,
)
from api.console.typed_forms import TypedForm, parse_body, read_number
from api.paging import Cursor
from api.record_ids import ListId, PathId
from api.schemas.segments import WatchChanges
from api.state import Transaction
from core.errors import DomainError
from core.errors.mailing import SEGMENT_TIME_ZONE
from models import MailingList, PauseReason, SegmentWatch
from services.paging import PageOfRows, PageRequest
from services.subscriptions import segments
from services.subscriptions.watches import preview, watches
from services.subscriptions.watches.pauses import REASON_SENTENCES
from services.subscriptions.watches.watches import DEFAULT_TIME_ZONE, ListedChange
from storage.unit_of_work import UnitOfWork

router = build_router(f"{CONSOLE_PATH}/lists/{{list_id}}/segments/{{segment_id}}")

CHANGES_ON_PAGE = 50
# Maps an error code to the form field that shows the error.
WATCH_PLACES = {SEGMENT_TIME_ZONE.code: "time_zone"}
# The value of the query parameter ``count`` that requests the exact number of entries.
ENTRY_COUNT = "entries"
# The form field with which the owner confirms a change that concerns watched segments.
CONFIRMED = "confirmed"


@router.get("/changes")
def show_changes(
    console: MembersPage,
    uow: Transaction,
    list_id: ListId,
    segment_id: PathId,
    cursor: Cursor = None,
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    segment = segments.get_segment(uow, mailing_list.id, segment_id)
    watch = watches.find_watch(uow, segment.id)
    page: PageOfRows[ListedChange] = PageOfRows([], None)
    if watch is not None:
        page_request = PageRequest(CHANGES_ON_PAGE, cursor=cursor)
        page = watches.list_newest_changes(uow, watch, page_request)
    console.count_members_page(uow)
    return console.render_page(
        "segment_changes.html",
        list=mailing_list,
        segment=segment,
        changes=page.rows,
        next_cursor=page.next_cursor,
    )


def read_watch(form: FormFields) -> dict[str, Any] | None:
    """Return the settings in the watch form, or ``None`` to stop watching."""
    if "stop" in form:
        return None
    values = {
        "time_zone": form.get("time_zone", "").strip(),
        "hour": read_number(form, "hour"),
        "imports": "imports" in form,
    }
    return parse_body(WatchChanges, values).sent()


def build_watch_values(watch: SegmentWatch | None, form: TypedForm) -> dict[str, Any]:
    """Return the values that a segment's page shows about its watch."""
    reason = watch and watch.pause_reason
    return {
        "watch": watch,
        "watch_form": form.fill(_list_settings(watch)),
        "pause_sentence": reason and REASON_SENTENCES[PauseReason(reason)],
        "hours": [(str(hour), f"{hour:02}:00") for hour in range(24)],
        "preview_days": preview.PREVIEW_DAYS,
    }


def describe_watch(watch: SegmentWatch | None) -> tuple[str, str] | None:
    """Return the mark and the word for a watched segment."""
    if watch is None:
        return None
    return ("warn", "Paused") if watch.pause_reason else ("good", "Watched")


def _list_settings(watch: SegmentWatch | None) -> dict[str, str]:
    if watch is None:
        return {"time_zone": DEFAULT_TIME_ZONE}
    values = {"time_zone": watch.time_zone, "hour": str(watch.hour)}
    return {**values, "imports": "on"} if watch.imports else values


def count_entries(
    console: ConsoleRequest,
    uow: UnitOfWork,
    mailing_list: MailingList,
    segment_id: int,
    count: str,
) -> MemberCount | None:
    """Count the members who would have entered a segment in the last days.

    Counting ends the transaction. The result is ``None`` for a watched segment, and for an
    invalid or large filter.

    ``count``: ``ENTRY_COUNT`` for an exact count.
    """
    segment = segments.get_segment(uow, mailing_list.id, segment_id)
    if watches.find_watch(uow, segment_id) is not None:
        return None
    try:
        entry_filter = preview.build_entry_filter(uow, mailing_list, segment.filter)
    except DomainError:
        return None
    if entry_filter is None:
        return None
    uow.roll_back()
    count = EXACT_COUNT if count == ENTRY_COUNT else ""
    result = count_selection(console.state.resources, mailing_list, entry_filter, count)
    return replace(result, recount=result.recount and f"?count={ENTRY_COUNT}")
