"""Tests that Postgres logs errors without addresses, names and password hashes."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import DBAPIError

from core.errors import DomainError
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.supervisor.home_folder import Home
from models import User
from services.accounts import accounts
from tests.support.people.visiting import PASSWORD


def test_database_log_shows_errors_without_their_values(stack: Stack, home: Path) -> None:
    log = Home(home.resolve()).log("postgres")
    start = log.stat().st_size
    word = secrets.token_hex(8)
    emails = [f"{word}.{number}@example.com" for number in range(2)]
    ids = [add(stack, email) for email in emails]
    with pytest.raises(DomainError):
        add(stack, emails[0])
    with pytest.raises(DBAPIError):
        sleep(stack, word, within="20ms")
    cancel(stack, word)
    deadlock(stack, ids, word)

    def read_log() -> str:
        return log.read_bytes()[start:].decode(errors="replace")

    errors = (
        'duplicate key value violates unique constraint "uq_users_email"',
        "canceling statement due to statement timeout",
        "canceling statement due to user request",
        "deadlock detected",
    )
    eventually(lambda: all(error in read_log() for error in errors), what="the errors")
    assert word not in read_log()
    assert "$argon2id$" not in read_log()


def add(stack: Stack, email: str) -> int:
    with stack.resources.unit_of_work() as uow:
        return accounts.create_user(uow, email=email, name=email, password=PASSWORD).id


def sleep(stack: Stack, word: str, *, within: str) -> None:
    with stack.resources.unit_of_work() as uow:
        uow.session.execute(text(f"SET LOCAL statement_timeout = '{within}'"))
        uow.session.execute(text("SELECT :word, pg_sleep(60)"), {"word": word})


def cancel(stack: Stack, word: str) -> None:
    cancelled = (
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND state = 'active' AND query LIKE %s"
    )
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sleep, stack, word, within="60s")
        eventually(lambda: stack.query(cancelled, f"%{word}%pg_sleep%"), what="the statement")
        assert isinstance(waiting.exception(), DBAPIError)


def deadlock(stack: Stack, ids: list[int], word: str) -> None:
    """Cause a deadlock: two transactions change the same two users in different orders."""
    both_hold_one_lock = Barrier(2)

    def change(first: int, second: int) -> None:
        with stack.resources.unit_of_work() as uow:
            for user_id in (first, second):
                uow.session.execute(update(User).where(User.id == user_id).values(name=word))
                if user_id == first:
                    both_hold_one_lock.wait(30)

    with ThreadPoolExecutor(2) as pool:
        transactions = [pool.submit(change, *ids), pool.submit(change, *reversed(ids))]
        errors = [transaction.exception() for transaction in transactions]
    assert sum(error is not None for error in errors) == 1
