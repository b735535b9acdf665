"""Mails the operator when checks of the deployment begin to fail or pass again.

A check counts as failing after it has failed in two runs in a row, and as passing after it has
passed in two. Otherwise, a restart of a server would cause two mails. Only one process at a time
runs this maintenance, so several hosts cause one mail.

The mail names the failing checks and what to do. It contains nothing that a check has found,
because error messages of servers can contain e-mail addresses and secrets.
"""

from datetime import datetime, timedelta

from services.accounts import account_mails
from services.accounts.account_mails import MailKind
from services.doctor.all_checks import run_all_checks
from services.doctor.runner import CheckState
from services.jobs import maintenance
from services.jobs.maintenance import register_maintenance
from storage.resources import Resources


def mail_operator(resources: Resources, began_at: datetime) -> int | None:
    """Run all checks, and mail the operator if other checks fail than in the last mail.

    Return the number of failing checks, or ``None`` if ``PRESSROOM_OPERATOR_MAIL`` is not set.
    """
    address = resources.settings.operator_mail
    if address is None:
        return None
    failing = {
        f"{each.part}, {each.check}": each.advice
        for each in run_all_checks(resources.settings)
        if each.state is CheckState.WRONG
    }
    with resources.unit_of_work() as uow:
        maintenance.require_run(uow, MAIL_OPERATOR, began_at)
        state = maintenance.read_state(uow, MAIL_OPERATOR)
        previous: dict[str, str] = state.get("failing", {})
        mailed: dict[str, str] = state.get("mailed", {})
        recent = previous | failing
        confirmed = {
            name: advice
            for name, advice in recent.items()
            if name in mailed or (name in failing and name in previous)
        }
        if confirmed.keys() != mailed.keys():
            kind = MailKind.CHECKS_FAIL if confirmed else MailKind.CHECKS_PASS
            detail = "\n".join(f"{name}: {advice}" for name, advice in sorted(confirmed.items()))
            account_mails.enqueue_mail(uow, kind, address, detail)
        maintenance.write_state(uow, MAIL_OPERATOR, {"failing": failing, "mailed": confirmed})
    return len(failing)


MAIL_OPERATOR = register_maintenance(
    "operator.mail",
    # The interval is long because each run calls the providers, which limit the number of calls.
    every=timedelta(minutes=5),
    run=mail_operator,
    max_run=timedelta(minutes=2),
)
