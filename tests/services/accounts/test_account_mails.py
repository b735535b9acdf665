import pytest
from sqlalchemy import update

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models import AccountMail
from services.accounts.account_mails import (
    DAILY_LIMIT,
    DAILY_LIMIT_PER_DETAIL,
    HOURLY_LIMIT,
    HOURLY_LIMIT_PER_DETAIL,
    MailKind,
    MailLimit,
    enqueue_mail,
)
from tests.support.lists.subscribers import await_mails

pytestmark = pytest.mark.stack


def test_mail_of_a_kind_that_only_a_newer_release_knows_is_retried(
    stack: Stack, owner: Owner
) -> None:
    with stack.resources.unit_of_work() as uow:
        enqueue_mail(uow, MailKind.PASSWORD_CHANGED, owner.email, person_id=owner.person_id)
        mail = AccountMail.email == owner.email
        uow.session.execute(update(AccountMail).where(mail).values(kind="later_kind"))
    [(mail_id,)] = stack.query("SELECT id FROM account_mails WHERE email = %s", owner.email)
    job_condition = "kind = 'account.mail' AND subject_id = %s"
    query = f"SELECT 1 FROM jobs WHERE {job_condition} AND status = 'queued' AND retries > 0"
    eventually(lambda: stack.query(query, mail_id), what="a retry of the job")
    stack.query("UPDATE account_mails SET kind = 'password_changed' WHERE id = %s", mail_id)
    stack.query(
        f"UPDATE jobs SET run_at = now(), send_after = now() WHERE {job_condition} RETURNING id",
        mail_id,
    )
    await_mails(stack, owner.email)


@pytest.mark.parametrize(
    ("limit", "count"),
    [
        (None, 8),
        (HOURLY_LIMIT, 3),
        (HOURLY_LIMIT_PER_DETAIL, 6),
        (DAILY_LIMIT, 1),
        (DAILY_LIMIT_PER_DETAIL, 2),
    ],
)
def test_mail_is_enqueued_unless_its_limit_is_reached(
    stack: Stack, owner: Owner, limit: MailLimit | None, count: int
) -> None:
    with stack.resources.unit_of_work() as uow:
        enqueue_mail(uow, MailKind.PASSWORD_CHANGED, owner.email)
        for detail in ("one", "two") * 4:
            enqueue_mail(uow, MailKind.NEW_KEY, owner.email, detail, limit=limit)
    query = "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_key'"
    assert stack.query(query, owner.email) == [(count,)]
