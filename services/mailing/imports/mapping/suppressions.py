"""Rows of a file of suppressed addresses: each says, or its file, why the person gets no mail."""

import re
from collections.abc import Iterable, Iterator, Sequence

import orjson

from models import ImportKind
from services.mailing.imports.mapping.header_words import MAX_WORD_CHARACTERS, key
from services.mailing.imports.mapping.rows import MemberRow, RejectedRecord, SuppressionStatus

_UNLESS_NAMED = {
    ImportKind.SUPPRESSIONS: SuppressionStatus.UNSUBSCRIBED,
    ImportKind.BOUNCES: SuppressionStatus.BOUNCED,
    ImportKind.COMPLAINTS: SuppressionStatus.COMPLAINED,
}
# What SES, Mailgun, SendGrid, Postmark and Brevo call the columns, and what stands in them.
_REASON_COLUMNS = frozenset(
    map(
        key,
        ("reason", "suppression reason", "type", "bounce type", "suppression type", "event"),
    )
)
_CODE_COLUMNS = frozenset(map(key, ("code", "status", "error code", "smtp code", "bounce code")))
_WORDS = {
    SuppressionStatus.COMPLAINED: (
        "complaint", "complained", "spam", "spam complaint", "spam report", "abuse",
        "contact flagged as spam",
    ),
    SuppressionStatus.BOUNCED: (
        "bounce", "bounced", "hard bounce", "permanent", "permanent fail", "undeliverable",
        "invalid", "invalid email",
    ),
    SuppressionStatus.UNSUBSCRIBED: (
        "unsubscribe", "unsubscribed", "group unsubscribe", "global unsubscribe", "manual",
        "manual suppression", "unsubscribed via ma", "unsubscribed via email",
        "unsubscribed via api", "admin blocked",
    ),
    # What may be delivered at the next try suppresses no address.
    None: ("soft bounce", "transient", "temporary", "temporary fail", "deferred", "block"),
}  # fmt: skip
_MEANINGS = {key(word): meaning for meaning, words in _WORDS.items() for word in words}
_WORST_FIRST = (
    SuppressionStatus.COMPLAINED,
    SuppressionStatus.BOUNCED,
    SuppressionStatus.UNSUBSCRIBED,
    None,
)
# Of SMTP, such as 550 and 5.1.1: a 4 at the beginning is no last word.
_CODE = re.compile(r"([45])(?:[0-9]{2}|(?:\.[0-9]{1,3}){2})\Z")
_BY_CODE = {"5": SuppressionStatus.BOUNCED, "4": None}


def suppressed(
    rows: Iterable[MemberRow | RejectedRecord], header: Sequence[str], kind: ImportKind
) -> Iterator[MemberRow | RejectedRecord]:
    """The rows, each with the reason why the person gets no mail.

    A reason that may pass makes a ``RejectedRecord``.
    """
    keys = [key(name) for name in header]
    reasons = [index for index, each in enumerate(keys) if each in _REASON_COLUMNS]
    codes = [index for index, each in enumerate(keys) if each in _CODE_COLUMNS]
    for row in rows:
        if isinstance(row, RejectedRecord):
            yield row
            continue
        # Without a header, and so without names, the word stands somewhere.
        named = [row.cells[index] for index in reasons if index < len(row.cells)]
        found = _named(named or row.cells)
        found |= _coded(row.cells[index] for index in codes if index < len(row.cells))
        if row.left:
            found.add(row.suppression)
        if found == {None}:
            reason = "The file says that mail may reach this address again."
            yield RejectedRecord(row.line, "row.may_pass", reason, row.cells)
            continue
        worst = next((each for each in _WORST_FIRST if each in found), _UNLESS_NAMED[kind])
        yield row._replace(suppression=worst or _UNLESS_NAMED[kind])


def _named(cells: Iterable[str]) -> set[SuppressionStatus | None]:
    words = (key(_word(cell)) for cell in cells)
    return {_MEANINGS[word] for word in words if word in _MEANINGS}


def _word(cell: str) -> str:
    """The cell; of an object, which Brevo has for a reason, its code."""
    if len(cell) > MAX_WORD_CHARACTERS * 10 or not cell.startswith("{"):
        return cell
    try:
        found = orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell
    code = found.get("code")
    return code if isinstance(code, str) else ""


def _coded(cells: Iterable[str]) -> set[SuppressionStatus | None]:
    matches = (_CODE.match(cell.strip()) for cell in cells)
    return {_BY_CODE[match[1]] for match in matches if match}
