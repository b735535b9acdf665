"""Tests of the mails to the operator about failing checks."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from core.ids import random_hash_id
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.commands.running import pressroom, run_command_process

TASK = "operator.mail"
FAIL_SUBJECT = "Pressroom: 1 failing check"
PASS_SUBJECT = "Pressroom: all checks pass again"
UNREACHABLE = {"PRESSROOM_PUBLIC_URL": "http://127.0.0.1:9"}
CHECK = "public URL, reachable"


@pytest.fixture(autouse=True)
def _healthy_stack(stack: Stack) -> None:
    """Wait until all checks pass, because a new stack has queues without canaries."""
    eventually(lambda: pressroom(stack, "doctor").returncode == 0, within=60, what="no fault")


@pytest.fixture
def operator_address(stack: Stack) -> Iterator[str]:
    """The operator's address, without faults that an earlier test has stored."""
    forget = "UPDATE maintenance SET state = NULL WHERE name = %s"
    stack.query(forget, TASK)
    yield f"{random_hash_id()}@example.com"
    stack.query(forget, TASK)


def run_checks(stack: Stack, address: str, **environment: str) -> None:
    process = pressroom(stack, "maintenance", TASK, PRESSROOM_OPERATOR_MAIL=address, **environment)
    assert process.returncode == 0, process.stderr


def count_mails(stack: Stack, address: str) -> int:
    [(count,)] = stack.query("SELECT count(*) FROM account_mails WHERE email = %s", address)
    return int(str(count))


def wait_for_mails(stack: Stack, address: str, count: int) -> list[dict[str, Any]]:
    """Wait until this number of mails has arrived, and return them, newest first."""

    def find_mails() -> list[dict[str, Any]]:
        mails = stack.mails(address)
        return mails if len(mails) >= count else []

    mails = eventually(find_mails, within=60, what="the mails to the operator")
    assert len(mails) == count_mails(stack, address) == count
    return mails


def test_operator_gets_one_mail_when_a_check_fails_and_one_when_all_checks_pass(
    stack: Stack, operator_address: str
) -> None:
    run_checks(stack, operator_address, **UNREACHABLE)
    assert count_mails(stack, operator_address) == 0
    for _ in range(3):
        run_checks(stack, operator_address, **UNREACHABLE)
    [mail] = wait_for_mails(stack, operator_address, 1)
    assert mail["subject"] == FAIL_SUBJECT
    for text in (mail["text"], mail["html"]):
        assert f"{CHECK}: Check PRESSROOM_PUBLIC_URL, its DNS name" in text
        assert stack.environment["PRESSROOM_PUBLIC_URL"] in text
    run_checks(stack, operator_address)
    assert count_mails(stack, operator_address) == 1
    for _ in range(2):
        run_checks(stack, operator_address)
    assert wait_for_mails(stack, operator_address, 2)[0]["subject"] == PASS_SUBJECT


def test_operator_gets_no_mail_about_a_check_that_fails_only_once(
    stack: Stack, operator_address: str
) -> None:
    for environment in (UNREACHABLE, {}, UNREACHABLE, {}, {}):
        run_checks(stack, operator_address, **environment)
    assert count_mails(stack, operator_address) == 0


def test_mail_to_the_operator_lists_a_new_fault_without_addresses_and_error_messages(
    stack: Stack, operator_address: str
) -> None:
    for _ in range(2):
        run_checks(stack, operator_address, **UNREACHABLE)
    wait_for_mails(stack, operator_address, 1)
    stack.query(
        "INSERT INTO maintenance (name, every_seconds, due_at, last_error)"
        " VALUES ('broken', 60, now(), 'Error: ada@example.com hunter2')"
    )
    try:
        for _ in range(2):
            run_checks(stack, operator_address, **UNREACHABLE)
    finally:
        stack.query("DELETE FROM maintenance WHERE name = 'broken'")
    mail = wait_for_mails(stack, operator_address, 2)[0]
    assert mail["subject"] == "Pressroom: 2 failing checks"
    assert "maintenance, last runs: Run `pressroom maintenance NAME`" in mail["text"]
    assert CHECK in mail["text"]
    for word in ("ada", "hunter2"):
        assert word not in mail["text"] + mail["html"]


def test_several_hosts_cause_one_mail_although_the_mail_server_defers_it(
    stack: Stack, operator_address: str
) -> None:
    # The sandbox defers each mail to such an address twice.
    operator_address = f"later+{operator_address}"
    environment = {
        **stack.environment,
        **UNREACHABLE,
        "PRESSROOM_OPERATOR_MAIL": operator_address,
    }
    run_checks(stack, operator_address, **UNREACHABLE)
    with ThreadPoolExecutor(3) as hosts:
        processes = list(
            hosts.map(lambda _: run_command_process(environment, "maintenance", TASK), range(3))
        )
    assert {process.returncode for process in processes} <= {0, 1}
    for process in processes:
        assert process.returncode == 0 or "maintenance.running" in process.stderr
    wait_for_mails(stack, operator_address, 1)


def test_checks_need_the_address_of_the_operator(stack: Stack) -> None:
    process = pressroom(stack, "maintenance", TASK, "--json", **UNREACHABLE)
    assert '"done": null' in process.stdout
    process = pressroom(stack, "maintenance", TASK, PRESSROOM_OPERATOR_MAIL="Ada <ada@x.org>")
    assert process.returncode == 2
    assert "PRESSROOM_OPERATOR_MAIL: must be one ASCII e-mail address such as" in process.stderr
