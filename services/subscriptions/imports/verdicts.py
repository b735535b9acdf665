"""The verdicts of an import on the rows of its file."""

ADDED, ALREADY, OPTED_OUT, LEFT = "added", "already", "opted_out", "left"
OVER_QUOTA, DENIED = "over_quota", "denied"
INVALID, DUPLICATE = "invalid", "duplicate"
VERDICTS = ("added", "already", "opted_out", "invalid", "duplicate", "denied")
COUNTS = ("received", *VERDICTS, "updated")
