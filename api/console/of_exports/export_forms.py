"""The form of an export, as the API's body."""

from collections.abc import Mapping, Sequence
from typing import Any

from api.console.typed_forms import body_of_form
from api.schemas.segments import NewExport
from core.refusals.segments import SEGMENT_FIELD_RETIRED, SEGMENT_NOT_FOUND
from models import SubscriptionStatus
from services.mailing.export_sheets import ExportFormat, ExportKind

# Beside which field a refusal stands that names none.
PLACES = {
    SEGMENT_NOT_FOUND.code: "segment_id",
    SEGMENT_FIELD_RETIRED.code: "segment_id",
}
FORMATS = (
    (ExportFormat.CSV.value, "CSV", "For spreadsheets and other products."),
    (ExportFormat.JSONL.value, "JSON Lines", "One object a line, for programs."),
)
_STATUS_WORDS = {
    SubscriptionStatus.ACTIVE: "Active members",
    SubscriptionStatus.PENDING: "People who have not confirmed yet",
    SubscriptionStatus.UNSUBSCRIBED: "People who left",
    SubscriptionStatus.REMOVED: "People who were removed",
}
_BOX = "status_"


def status_boxes() -> Sequence[tuple[str, str]]:
    return [
        (_BOX + status, _STATUS_WORDS.get(status, status.capitalize()))
        for status in SubscriptionStatus
    ]


def export_body(form: Mapping[str, str]) -> NewExport:
    """What the form asks for: a roster is for the program that sends. Raises ``body.invalid``."""
    statuses = [status.value for status in SubscriptionStatus if _BOX + status in form]
    segment = form.get("segment_id", "")
    values: dict[str, Any] = {
        "kind": ExportKind.MEMBERS.value,
        "format": form.get("format", ""),
        "status": statuses or None,
        "segment_id": int(segment) if segment.isascii() and segment.isdecimal() else None,
    }
    return body_of_form(NewExport, values)
