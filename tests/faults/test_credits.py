"""Money through crowds and crashes: each charge once, none lost, the books always balanced."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from secrets import token_hex

import httpx
import pytest

from core.errors import DomainError
from devstack.supervisor.programs import answers
from services.money.credits import ledger, verify
from tests.embedded import Services, embedded_services
from tests.ports import free_port
from tests.sizes import sized
from tests.stack import Owner, Stack, eventually, open_stack

CONSUME = "/auxilia/credits/consume"
HEALTHY_WITHIN = 60.0


@dataclass(frozen=True)
class Bank:
    """A stack whose services are its own, so that no other test sees them die."""

    stack: Stack
    services: Services

    def holder(self, credits: str) -> Owner:
        owner = self.stack.new_owner()
        database = self.stack.resources.database
        ledger.grant(database, owner.user_id, Decimal(credits), source_id="start")
        return owner

    def balance(self, owner: Owner) -> Decimal:
        [(found,)] = self.stack.query(
            "SELECT balance FROM credit_accounts WHERE user_id = %s", owner.user_id
        )
        assert isinstance(found, Decimal)
        return found

    def entries(self, owner: Owner) -> list[tuple[object, ...]]:
        return self.stack.query(
            "SELECT seq, delta, balance_after, source_id FROM credit_entries"
            " WHERE user_id = %s ORDER BY seq",
            owner.user_id,
        )

    def require_clean_books(self) -> None:
        assert verify.run(self.stack.resources.database.engine).faults == []


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    home: Path = tmp_path_factory.mktemp("bank")
    port = free_port()
    with embedded_services(home) as services, open_stack(services, home, "bank", 1, port) as stack:
        stack.start_api()
        yield Bank(stack, services)


def charge(
    client: httpx.Client, amount: str, source_id: str = "x", key: str | None = None
) -> httpx.Response:
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    body = f'{{"amount_credit": {amount}, "source_id": "{source_id}"}}'
    return client.post(CONSUME, content=body, headers=headers)


def at_once(count: int, call: Callable[[int], list[httpx.Response]]) -> list[httpx.Response]:
    start = threading.Barrier(count)

    def begin(number: int) -> list[httpx.Response]:
        start.wait(60)
        return call(number)

    with ThreadPoolExecutor(count) as pool:
        return [reply for replies in pool.map(begin, range(count)) for reply in replies]


@pytest.mark.fast
def test_equal_charges_at_once_under_one_key_are_one_entry(bank: Bank) -> None:
    for _ in range(sized(1, 20)):
        owner, key = bank.holder("10"), token_hex(16)
        with _many_connections(bank, owner) as client:
            replies = at_once(200, partial(_charge_once, client, key))
        assert {reply.status_code for reply in replies} == {200}
        assert len({reply.text.rpartition(',"ts":')[0] for reply in replies}) == 1
        assert sum("idempotent-replayed" not in reply.headers for reply in replies) == 1
        assert len(bank.entries(owner)) == 2
        assert bank.balance(owner) == Decimal("9.9")
    bank.require_clean_books()


def _charge_once(client: httpx.Client, key: str, _: int) -> list[httpx.Response]:
    return [charge(client, "0.1", key=key)]


def _many_connections(bank: Bank, owner: Owner) -> httpx.Client:
    return httpx.Client(
        base_url=bank.stack.api_url,
        headers={"Authorization": f"Bearer {owner.key}"},
        limits=httpx.Limits(max_connections=200),
        timeout=60,
    )


def test_callers_of_one_account_never_overdraw_it(bank: Bank) -> None:
    owner = bank.holder("3.3333")

    def spend(number: int) -> list[httpx.Response]:
        cents = random.Random(number)
        return [charge(client, f"0.{cents.randint(1, 3000):04}") for _ in range(sized(4, 200))]

    with _many_connections(bank, owner) as client:
        replies = at_once(50, spend)
    assert {reply.status_code for reply in replies} <= {200, 402}
    paid = [
        json.loads(reply.text, parse_float=Decimal)["data"]
        for reply in replies
        if reply.status_code == 200
    ]
    left = Decimal("3.3333") - sum((each["amount_credit"] for each in paid), Decimal(0))
    assert bank.balance(owner) == left >= 0
    kept = bank.entries(owner)
    assert [seq for seq, *_ in kept] == list(range(1, len(paid) + 2))
    assert sorted((each["seq"], each["balance_after"]) for each in paid) == [
        (seq, after) for seq, _, after, _ in kept[1:]
    ]
    # Some were refused: the account was asked for more than it had.
    assert len(paid) < len(replies)
    bank.require_clean_books()


def test_any_order_of_movements_leaves_what_exact_arithmetic_says(bank: Bank) -> None:
    for seed in range(sized(3, 100)):
        chance = random.Random(seed)
        owner, expected, count = bank.holder("1"), Decimal(1), 1
        for _ in range(sized(60, 500)):
            amount = Decimal(chance.choice([chance.randint(1, 99), chance.randint(1, 10**7)]))
            amount = amount.scaleb(-4)
            delta = amount if (kind := chance.choice("gacc")) == "g" else -amount
            if kind == "a" and chance.random() < 0.5:
                delta = amount
            if expected + delta < 0:
                with pytest.raises(DomainError, match="too low"):
                    _move(bank, kind, owner.user_id, delta)
            else:
                _move(bank, kind, owner.user_id, delta)
                expected, count = expected + delta, count + 1
        assert bank.balance(owner) == expected
        assert [seq for seq, *_ in bank.entries(owner)] == list(range(1, count + 1))
    bank.require_clean_books()


def _move(bank: Bank, kind: str, user_id: int, delta: Decimal) -> None:
    database = bank.stack.resources.database
    if kind == "g":
        ledger.grant(database, user_id, delta, source_id="x")
    elif kind == "a":
        ledger.adjust(database, user_id, delta, source_id="x")
    else:
        ledger.consume(database, user_id, amount=-delta, source_id="x", meta=None, key=None)


@dataclass
class Spenders:
    """Callers who charge one account without pause, and what they were told."""

    bank: Bank
    owner: Owner
    stop: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, Decimal] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    strange: list[str] = field(default_factory=list)

    def have_charged(self, count: int) -> bool:
        return len(self.acknowledged) > count

    def run(self, number: int) -> None:
        with self.bank.stack.client(self.owner.key) as client:
            count = 0
            while not self.stop.is_set():
                count += 1
                self._charge(client, f"{number}-{count}")

    def _charge(self, client: httpx.Client, name: str) -> None:
        # Half of them ask again under their key until they know.
        key = f"charge-of-spender-{name}" if int(name[-1]) % 2 else None
        while True:
            try:
                reply = charge(client, "0.0007", name, key)
            except httpx.HTTPError as error:
                self.strange.append(repr(error))
                return
            if reply.status_code == 200:
                entry = json.loads(reply.text, parse_float=Decimal)["data"]
                self.acknowledged[name] = entry["balance_after"]
                self.unsure.discard(name)
                return
            self.unsure.add(name)
            if reply.status_code not in {409, 503}:
                self.strange.append(reply.text)
                return
            if key is None or self.stop.wait(0.05):
                return


def test_acknowledged_charges_survive_killed_databases(bank: Bank) -> None:
    owner = bank.holder("1000000")
    spenders = Spenders(bank, owner)
    threads = [threading.Thread(target=spenders.run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(sized(3, 100)):
            known = len(spenders.acknowledged)
            eventually(
                partial(spenders.have_charged, known + 20),
                within=HEALTHY_WITHIN,
                what="charges after the last kill",
            )
            bank.services.restart("postgres")
            eventually(
                lambda: answers(bank.stack.api_port, "/readyz"),
                within=HEALTHY_WITHIN,
                what="/readyz",
            )
    finally:
        spenders.stop.set()
        for thread in threads:
            thread.join()
    assert spenders.strange == []
    _require_all_there(bank, owner, spenders)


def _require_all_there(bank: Bank, owner: Owner, spenders: Spenders) -> None:
    kept = bank.entries(owner)[1:]
    after = {str(source): balance for _, _, balance, source in kept}
    # Each charge once, whoever asked again.
    assert len(after) == len(kept)
    assert {name: after.get(name) for name in spenders.acknowledged} == spenders.acknowledged
    # What was refused with a 503 may be there or not, and nothing else is.
    assert set(after) <= set(spenders.acknowledged) | spenders.unsure
    assert [seq for seq, *_ in kept] == list(range(2, len(kept) + 2))
    assert bank.balance(owner) == 1_000_000 - Decimal("0.0007") * len(kept)
    bank.require_clean_books()
