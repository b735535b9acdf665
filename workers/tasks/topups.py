from typing import Any

from services.jobs.lease import Lease
from services.money.topups import checkout, polling
from services.money.topups.checkout import OPEN_CHECKOUT
from storage.redis.request_work import RequestLease
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(OPEN_CHECKOUT)
def open_checkout(lease: Lease) -> None:
    checkout.open_checkout(context.resources(), context.payments(), lease)


@TASKS.request("topup.refresh")
def refresh(question: RequestLease) -> dict[str, Any]:
    """The state of an order whose payer has come back."""
    status = polling.refresh(context.resources(), context.payments(), question.payload["order_id"])
    return {"status": status}


@TASKS.periodic("topups.poll")
def poll() -> None:
    """Settle orders whose webhook never came, and end those that nobody paid."""
    polling.poll(context.resources(), context.payments())
