from collections.abc import Callable

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.accounts import account_mails
from services.accounts.account_mails import MailKind
from tests.support.composer.composer_stack import build_unique_post
from tests.support.composer.composing import METADATA
from tests.support.sizes import sized

MAIL_COUNT = sized(300, 10_000)
WAITING_QUEUES = ("request", "photos", "money", "mail", "maintenance")


def test_mails_to_a_hanging_server_delay_no_composer_call(
    make_stack: Callable[[str], Stack], silent_server_url: str
) -> None:
    stack = make_stack("rush")
    stack.start_api()
    stack.start_worker(*WAITING_QUEUES, PRESSROOM_MAIL_URL=f"smtp://{silent_server_url}")
    owner = stack.create_owner()
    with stack.resources.unit_of_work() as uow:
        for _ in range(MAIL_COUNT):
            account_mails.enqueue_mail(
                uow, MailKind.PASSWORD_CHANGED, owner.email, person_id=owner.person_id
            )
    running = "SELECT 1 FROM jobs WHERE queue = 'mail' AND status = 'running' OFFSET 1"
    eventually(lambda: stack.query(running), what="mails that use all threads of their queue")
    with stack.client(owner.key) as client:
        for number in range(5):
            reply = client.post(METADATA, json=build_unique_post(f"{number} "), timeout=20)
            assert reply.status_code == 200, reply.text
    unfinished = "SELECT count(*) FROM jobs WHERE queue = 'mail' AND finished_at IS NULL"
    assert stack.query(unfinished) == [(MAIL_COUNT,)]
    # Cancel the queued mails, so that Pressroom doesn't keep retrying them during later tests.
    ended = "status = 'cancelled', finished_at = now(), lease_expires_at = NULL"
    stack.query(f"UPDATE jobs SET {ended} WHERE queue = 'mail'")
