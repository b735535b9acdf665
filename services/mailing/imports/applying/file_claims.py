"""What rows say of the consent of the members whom they name."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from core.settings import Settings
from models import ConsentHow, MemberImport
from services.mailing.consent import consent_claims
from services.mailing.consent.consent_claims import ConsentClaimed
from services.mailing.imports.applying import extras
from services.mailing.imports.applying.verdicts import ADDED, ALREADY
from services.mailing.imports.chunks import JudgedRow
from storage.unit_of_work import UnitOfWork

# Who says so, where the file is of no product that we know.
_ANY_FILE = "file"


def keep_claims(
    uow: UnitOfWork,
    settings: Settings,
    task: MemberImport,
    rows: Sequence[JudgedRow],
    found: Sequence[str],
) -> None:
    """Keep the claims about rows' members, who were written before.

    ``found``: each row's verdict.
    """
    claims = [
        claimed
        for number, row_extras in extras.of_rows(rows)
        if row_extras.claim and found[number] in (ADDED, ALREADY)
        for claimed in _claimed(rows[number].email, row_extras.claim)
    ]
    if claims:
        product = (task.description or {}).get("product") or _ANY_FILE
        consent_claims.claim_many(uow, settings, task.id, claims, claimed_by=product)


def _claimed(email: str, claim: Mapping[str, str]) -> Iterator[ConsentClaimed]:
    """The first asking and its confirmation are claims of their own."""
    confirmed = claim.get("confirmed_at"), claim.get("confirmed_ip")
    asked = ("at", "how", "ip", "url", "wording")
    if any(part in claim for part in asked):
        yield ConsentClaimed(
            email,
            ConsentHow(claim.get("how", ConsentHow.FORM)),
            _moment(claim.get("at")),
            claim.get("ip"),
            claim.get("url"),
            claim.get("wording"),
        )
    if any(confirmed):
        moment, ip = confirmed
        yield ConsentClaimed(email, ConsentHow.CONFIRMATION, _moment(moment), ip)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
