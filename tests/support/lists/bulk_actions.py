"""Starts bulk actions without HTTP, and runs their jobs as a worker does."""

from dataclasses import dataclass
from typing import Any
from unittest import mock

from devstack.harness.stack import Owner, Stack
from models import BulkActionKind, Job
from services.jobs import batches
from services.subscriptions import lists
from services.subscriptions.bulk_actions import actions
from services.subscriptions.bulk_actions.actions import BulkOrder
from services.subscriptions.bulk_actions.undo import BULK_UNDO
from services.subscriptions.filters import member_filter
from storage.resources import Resources
from tests.support.imports.importing import ImportRunner, csv_of

EVERYBODY = {"field": "email", "exists": True}


@dataclass(frozen=True)
class BulkActions:
    importing: ImportRunner
    owner: Owner
    list_id: int

    @property
    def stack(self) -> Stack:
        return self.importing.stack

    @property
    def resources(self) -> Resources:
        return self.importing.resources

    def add(self, count: int, *, tag: str = "") -> list[str]:
        addresses = [f"{number:03}.{tag}{self.list_id}@example.com" for number in range(count)]
        self.importing.import_members(
            self.owner, self.list_id, csv_of([[each, ""] for each in addresses])
        )
        return addresses

    def begin(
        self, action: BulkActionKind, value: str | None = None, written: Any = EVERYBODY
    ) -> int:
        order = actions.check_order(BulkOrder(action, value))
        with self.resources.unit_of_work() as uow:
            mailing_list = lists.get_list(uow, self.list_id)
            stored_filter = member_filter.prepare_stored_filter(uow, mailing_list, written)
            caller = self.importing.caller(self.owner)
            job = actions.begin_bulk_action(uow, mailing_list, stored_filter, order, caller=caller)
            return job.id

    def take_turn(self, job_id: int) -> None:
        """Run one batch of the job of a bulk action."""
        lease = self.importing.lease(job_id)
        with mock.patch.object(batches.Turn, "is_over", side_effect=[False, True]):
            actions.change_members(self.resources, lease)

    def do(
        self, action: BulkActionKind, value: str | None = None, written: Any = EVERYBODY
    ) -> dict[str, int]:
        return self._result(self.importing.work(self.begin(action, value, written)))

    def begin_undo(self, bulk_id: int) -> int:
        with self.resources.unit_of_work() as uow:
            job_id = BULK_UNDO.start(uow, self.importing.caller(self.owner), bulk_id)
        assert job_id is not None
        return job_id

    def undo(self, bulk_id: int) -> dict[str, int]:
        return self._result(self.importing.work(self.begin_undo(bulk_id)))

    def _result(self, job: Job) -> dict[str, int]:
        assert job.status == "succeeded", job.error
        assert job.result is not None
        return job.result

    def records(self) -> list[tuple[object, ...]]:
        return self.importing.records(self.list_id)

    def events(self) -> list[tuple[object, ...]]:
        return self.stack.query(
            "SELECT user_id, action FROM subscription_events WHERE list_id = %s AND via = 'bulk'"
            " ORDER BY id",
            self.list_id,
        )

    def statuses(self) -> list[object]:
        rows = self.stack.query(
            "SELECT status FROM subscriptions WHERE list_id = %s ORDER BY id", self.list_id
        )
        return [status for (status,) in rows]
