"""Segments, and what is done with all members that fit a filter."""

from core.refusals.refusal import conflict, invalid, invalid_at, malformed, not_found

SEGMENT_NOT_FOUND = not_found("segment.not_found", "This list has no such segment.")
SEGMENT_NAME = invalid(
    "segment.name",
    "A segment's name has 1 to {most} characters in one line, at least one of them visible, and no "
    "control of text but joiners.",
    field="body.name",
    most=100,
)
SEGMENT_NAME_TAKEN = conflict(
    "segment.name_taken", "This list has a segment named {name!r} already.", name="Readers in Rome"
)
SEGMENT_TOO_MANY = conflict("segment.too_many", "A list has at most {most} segments.", most=500)
SEGMENT_FIELD_RETIRED = conflict(
    "segment.field_retired",
    "The filter names the field {key!r}, which was retired; change the filter.",
    key="city",
)
SELECTION_UNCLEAR = malformed("selection.unclear", "Name either a segment_id or a filter.")

BULK_NOT_FOUND = not_found("bulk.not_found", "There is no such act on members.")
BULK_RUNNING = conflict("bulk.running", "The act still runs; cancel its job first.")
BULK_UNDO_OVER = conflict("bulk.undo_over", "An act can be undone for {days} days.", days=90)
BULK_VALUE = invalid_at(
    "body.value",
    "bulk.value",
    "{rule}",
    rule="set_type takes one of free, silver, gold",
)

EXPORT_STATUS_OF_ROSTER = invalid_at(
    "body.status", "export.status_of_roster", "a roster holds active members alone"
)
