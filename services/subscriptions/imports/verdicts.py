"""The verdicts of an import on the rows of its file."""

ADDED = "added"
ALREADY = "already"
OPTED_OUT = "opted_out"
INVALID = "invalid"
DUPLICATE = "duplicate"
DENIED = "denied"
OVER_QUOTA = "over_quota"
# The row is an opt-out. It is counted as ``opted_out``.
LEFT = "left"
VERDICTS = (ADDED, ALREADY, OPTED_OUT, INVALID, DUPLICATE, DENIED)
# The counts in an import's result.
COUNTS = ("received", *VERDICTS, "updated")
