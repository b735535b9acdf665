"""Tells owners in advance which actions their plan doesn't allow.

A page that would offer a form for such an action shows a notice instead, because the service would
refuse the submitted form.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from core.ids import AccountId
from core.settings.notations import PlanQuota
from core.settings.plan_contact import PlanContact
from models import Plan
from services.access import quotas
from services.accounts import accounts
from storage.unit_of_work import UnitOfWork

ADDING_MEMBERS_TEXT = "Adding members requires the paid plan."
IMPORTING_FILES_TEXT = "Importing files requires the paid plan."

# For each quota, its name in a notice, and what the owner can do after reaching the limit.
_QUOTA_TEXTS: Mapping[PlanQuota, tuple[str, str]] = {
    PlanQuota.MEMBERS: ("members", "Remove members before you add others."),
    PlanQuota.LISTS: ("lists", "Archive a list before you create another one."),
    PlanQuota.STORAGE_MB: ("storage (MB)", "Delete images before you store more data."),
    PlanQuota.KEYS: ("API keys", "Revoke a key before you create another one."),
    PlanQuota.UNFINISHED_JOBS: (
        "jobs in progress",
        "Wait until an import, export or bulk action has ended, and reload this page.",
    ),
    PlanQuota.COMPOSER_PER_DAY: (
        "composer calls per day",
        "The count starts again at midnight (UTC).",
    ),
}


@dataclass(frozen=True)
class PlanNotice:
    """The reason why the plan doesn't allow an action.

    ``quota``: the exhausted quota, or ``None`` if the action requires the paid plan.
    """

    text: str
    quota: PlanQuota | None
    contact: PlanContact | None


def find_plan_notice(
    uow: UnitOfWork,
    account_id: AccountId,
    *used_quotas: PlanQuota,
    paid_plan_text: str | None = None,
) -> PlanNotice | None:
    """Return the notice for an action, or ``None`` if the plan allows the action.

    ``paid_plan_text``: the text of the notice if the action requires the paid plan, else ``None``.
    """
    account = accounts.get_account(uow, account_id)
    contact = find_plan_contact(uow, account.plan)
    if paid_plan_text is not None and account.plan != Plan.PAID:
        return PlanNotice(paid_plan_text, None, contact)
    exhausted = quotas.find_exhausted_quota(uow, account, used_quotas)
    if exhausted is None:
        return None
    quota, use = exhausted
    name, advice = _QUOTA_TEXTS[quota]
    text = (
        f"You have reached your plan’s limit for {name}. "
        f"You have used {use.used:,} of {use.limit:,}. {advice}"
    )
    return PlanNotice(text, quota, contact)


def can_import(uow: UnitOfWork, account_id: AccountId) -> bool:
    """Return whether the user's plan allows the user to import and to add members."""
    return accounts.get_account(uow, account_id).plan == Plan.PAID


def find_plan_contact(uow: UnitOfWork, plan: str) -> PlanContact | None:
    """Return the address or page at which owners can request the paid plan.

    Return ``None`` for owners with the paid plan, and if the operator has set no contact.
    """
    contact = uow.settings.plan_contact
    if contact is None or plan == Plan.PAID:
        return None
    return PlanContact.parse(contact)
