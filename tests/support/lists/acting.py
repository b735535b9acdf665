"""Performs actions on mailing lists, such as sign-ups, opt-outs, imports and erasures.

Each action uses the interface that the person would use, such as an API call with the person's key.
"""

from dataclasses import dataclass, field

import httpx2

from core.errors import DomainError
from core.ids import PersonId, random_hash_id
from devstack.harness.stack import Owner, Stack
from services.accounts import accounts, mailed_tokens
from services.accounts.mailed_tokens import Purpose
from services.subscriptions import lists, sign_up
from services.subscriptions.members import traces, unsubscribe
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.traces import Trace
from storage.resources import Resources
from tests.support.lists.model import Reply
from tests.support.people.erasure import Erased, erase


@dataclass
class Person:
    """A person who may join lists.

    Attributes:
        user_id: the current user with the person's address, or None.
        key: an API key, or None for a person without a login.
        gone: the ids of erased users who had the same address.
    """

    address: str
    user_id: int | None = None
    key: str | None = None
    gone: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class ListActions:
    """Performs actions of owners, members, strangers and the operator on mailing lists.

    Most methods return the HTTP status of the response, together with its data or its error code.
    """

    stack: Stack
    client: httpx2.Client

    @property
    def resources(self) -> Resources:
        return self.stack.resources

    def reply(self, method: str, path: str, *, key: str | None = None, **request: object) -> Reply:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        response = self.client.request(method, path, headers=headers, **request)  # type: ignore[arg-type]
        body = response.json()
        if response.status_code != httpx2.codes.OK:
            return response.status_code, body["code"]
        data = body["data"]
        return response.status_code, data["type"] if isinstance(data, dict) else data

    def new_list(self, owner: Owner, *, confirm_required: bool, challenge: bool) -> int:
        challenge_fields = {"challenge_enabled": True, "challenge_provider": "turnstile"}
        response = self.client.post(
            "/lists",
            headers={"Authorization": f"Bearer {owner.key}"},
            json={
                "title": "A list",
                "slug": random_hash_id(),
                "confirm_required": confirm_required,
                **(challenge_fields if challenge else {}),
            },
        )
        return int(response.json()["data"]["id"])

    def new_person(self, *, with_login: bool) -> Person:
        person = Person(f"{random_hash_id()}@example.com")
        if with_login:
            with self.resources.unit_of_work() as uow:
                user = accounts.create_user(uow, email=person.address, name="Ada Reader")
                person.user_id = user.id
            person.key = self.stack.create_key(user.id)
        return person

    def ask(self, list_id: int, address: str, *, challenge: bool = False) -> Reply:
        solved_challenge = {
            "challenge-provider": "turnstile",
            "challenge-token": f"pass-{random_hash_id()}",
            "challenge-action": "subscribe",
        }
        body = {"email": address, **(solved_challenge if challenge else {})}
        return self.reply("POST", f"/subscriptions/{list_id}", json=body)

    def trace(self, list_id: int, user_id: int) -> dict[str, str]:
        keyring = self.resources.keyring
        return {"trace_id": traces.create_trace_id(keyring, Trace(list_id, PersonId(user_id)))}

    def leave(self, list_id: int, *, key: str | None = None, user_id: int = 0) -> Reply:
        query = None if key else self.trace(list_id, user_id)
        return self.reply("DELETE", f"/subscriptions/{list_id}", key=key, params=query)

    def undo_leave(self, list_id: int, user_id: int) -> None:
        reader = Actor(ActorKind.USER, Via.PAGE, user_id)
        with self.resources.unit_of_work() as uow:
            mailing_list = lists.get_list(uow, list_id, archived=True)
            person = accounts.get_user(uow, PersonId(user_id))
            unsubscribe.undo_leave(uow, mailing_list, person, reader)

    def switch_mail(
        self, list_id: int, *, enabled: bool, key: str | None = None, user_id: int = 0
    ) -> Reply:
        body = {"enabled": enabled} | ({} if key else self.trace(list_id, user_id))
        return self.reply("PUT", f"/subscriptions/{list_id}/email", key=key, json=body)

    def one_click(self, list_id: int, user_id: int) -> Reply:
        return self.reply(
            "POST",
            f"/subscriptions/{list_id}/delete",
            params=self.trace(list_id, user_id),
            data={"List-Unsubscribe": "One-Click"},
        )

    def mail_link(self, list_id: int, user_id: int) -> str:
        purpose = Purpose.CONFIRM_SUBSCRIPTION
        with self.resources.unit_of_work() as uow:
            return mailed_tokens.create_token(
                uow, purpose, person_id=PersonId(user_id), list_id=list_id
            )

    def confirm(self, secret: str) -> str | None:
        reader = Actor(ActorKind.USER, Via.CONFIRMATION)
        try:
            with self.resources.unit_of_work() as uow:
                sign_up.confirm_subscription(uow, secret, reader)
        except DomainError as error:
            return error.code
        return None

    def remove(self, list_id: int, user_id: int, key: str) -> Reply:
        return self.reply("DELETE", f"/subscriptions/{list_id}/members/{user_id}", key=key)

    def transfer(self, source: int, target: int, user_id: int, key: str) -> Reply:
        path = f"/subscriptions/{source}/members/{user_id}/transfer"
        return self.reply("POST", path, key=key, params={"dst_list_id": target})

    def import_members(
        self, list_id: int, rows: list[tuple[str, bool]], key: str
    ) -> dict[str, int]:
        lines = [f"{each},{'unsubscribed' if left else 'subscribed'}\n" for each, left in rows]
        reply = self.client.post(
            f"/lists/{list_id}/imports",
            content="".join(["email,status\n", *lines]),
            headers={"Authorization": f"Bearer {key}", "Prefer": "wait=30"},
        )
        assert reply.status_code == httpx2.codes.OK, reply.text
        result: dict[str, int] = reply.json()["data"]["result"]
        return result

    def undo(self, import_id: int, key: str) -> Reply:
        return self.reply("DELETE", f"/imports/{import_id}/members", key=key)

    def erase(self, address: str) -> Erased:
        return erase(self.resources, address)
