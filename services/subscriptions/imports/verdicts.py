"""Defines an import's verdicts on the rows of its file."""

ADDED = "added"
ALREADY = "already"
OPTED_OUT = "opted_out"
INVALID = "invalid"
DUPLICATE = "duplicate"
DENIED = "denied"
OVER_QUOTA = "over_quota"
# The verdict on an opt-out in the file, which is counted as ``opted_out`` in results.
LEFT = "left"
VERDICTS = (ADDED, ALREADY, OPTED_OUT, INVALID, DUPLICATE, DENIED)
# The names of the counts in an import's result.
COUNTS = ("received", *VERDICTS, "updated")
