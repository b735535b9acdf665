"""A process that dies between the model's answer and the charge for it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.contract import credits
from tests.contract.composing import METADATA
from tests.contract.replies import data
from tests.faults.held_rows import await_waiter, held
from tests.modelling import SOURCE, Modelled, post
from tests.stack import Stack


@pytest.fixture(scope="module")
def priced(make_stack: Callable[[str], Stack]) -> Modelled:
    modelled = Modelled(make_stack, "priced-faults", PRESSROOM_COMPOSER_PRICE="2")
    modelled.work()
    modelled.steer(None)
    return modelled


def test_who_got_no_answer_is_not_charged_and_pays_once_for_the_next(priced: Modelled) -> None:
    stack, body = priced.stack, post()
    owner = stack.new_owner()
    credits.grant(stack, owner.user_id, "2")
    [api] = [each for each in stack.processes if each.name == "api"]
    [(account,)] = stack.query("SELECT id FROM credit_accounts WHERE user_id = %s", owner.user_id)
    with stack.client(owner.key) as client, ThreadPoolExecutor() as pool:
        with held(stack, "credit_accounts", account):
            asked = pool.submit(client.post, METADATA, json=body)
            await_waiter(stack, "credit_accounts")
            api.kill()
        with pytest.raises(httpx.TransportError):
            asked.result()
    stack.start_api()
    with stack.client(owner.key) as client:
        assert credits.balance(client) == 2
        reply = client.post(METADATA, json=body)
        data(reply)
        assert reply.headers["pressroom-source"] == SOURCE
        assert credits.balance(client) == 0
