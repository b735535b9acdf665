"""Defines the verdicts on imported rows, which state whether and why a row was applied."""

ADDED = "added"
ALREADY = "already"
OPTED_OUT = "opted_out"
INVALID = "invalid"
DUPLICATE = "duplicate"
DENIED = "denied"
OVER_QUOTA = "over_quota"
# The verdict on a row that is an opt-out. The count of ``opted_out`` in an import's result includes
# rows with the verdict ``left``.
LEFT = "left"
VERDICTS = (ADDED, ALREADY, OPTED_OUT, INVALID, DUPLICATE, DENIED)
# The names of the row counts in an import's result.
COUNTS = ("received", *VERDICTS, "updated")
