"""Creates lists that record engagement, reports opens and clicks, and reads what was recorded."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx2

from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import new_address, new_list, require_member, trace_for
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import Report, deliver, delivery_for, outcomes, report


@dataclass
class MeasuredList:
    """A list with a sender, for tests of engagement."""

    stack: Stack
    client: httpx2.Client
    id: int
    sender: dict[str, Any]

    def add_member(self) -> int:
        """Add a member who hasn't answered, and return the user id."""
        email = new_address()
        data(add(self.client, self.id, email))
        return int(require_member(self.client, self.id, email)["user_id"])

    def read_member(self, user_id: int) -> dict[str, Any]:
        return dict(data(self.client.get(f"/lists/{self.id}/members/{user_id}")))

    def read_engagement(self, user_id: int) -> dict[str, Any] | None:
        engagement: dict[str, Any] | None = self.read_member(user_id)["engagement"]
        return engagement

    def set_mode(self, mode: str) -> None:
        data(self.client.patch(f"/lists/{self.id}", json={"engagement": mode}))

    def build_report(
        self,
        kind: str,
        user_id: int,
        mailing_id: int = 1,
        *,
        day: datetime | None = None,
        **fields: object,
    ) -> Report:
        delivery_id = delivery_for(self.stack, self.id, user_id, mailing_id, day)
        return report(kind, delivery_id=delivery_id, **fields)

    def report(self, *reports: Report) -> list[str]:
        """Deliver reports, and return their outcomes."""
        deliver(self.stack, self.client, self.sender, *reports)
        return outcomes(self.client, self.sender)[-len(reports) :]

    def report_event(
        self,
        kind: str,
        user_id: int,
        mailing_id: int = 1,
        *,
        day: datetime | None = None,
        **fields: object,
    ) -> str:
        [outcome] = self.report(self.build_report(kind, user_id, mailing_id, day=day, **fields))
        return outcome

    def answer(self, client: httpx2.Client, user_id: int, *, enabled: bool) -> None:
        """Answer with a trace id from a mail."""
        path = f"/subscriptions/{self.id}/engagement"
        query = {"trace_id": trace_for(self.stack, self.id, user_id)}
        assert data(client.put(path, params=query, json={"enabled": enabled})) == 1

    def count_marks(self, user_id: int) -> int:
        """Count the marks that show what a member did."""
        query = (
            "SELECT 1 FROM mailing_marks WHERE list_id = %s AND user_id = %s"
            " AND kind IN ('opened', 'machine_opened', 'clicked')"
        )
        return len(self.stack.query(query, self.id, user_id))


def new_measured_list(
    stack: Stack, client: httpx2.Client, mode: str = "all", **fields: object
) -> MeasuredList:
    list_id = int(new_list(client, engagement=mode, **fields)["id"])
    return MeasuredList(stack, client, list_id, new_sender(client, list_ids=[list_id]))
