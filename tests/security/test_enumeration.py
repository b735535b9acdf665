"""Tests that neither responses nor their durations reveal who subscribes to a list."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx2
import pytest

from api.response_timing import STEP_SECONDS
from api.sign_up.sealed_answers import SentAnswers, seal_answers
from core import clock
from devstack.harness.stack import Owner, Stack
from models import MailingList, Plan, User
from services.accounts import accounts
from services.privacy import erasure
from services.subscriptions import lists, sign_up
from services.subscriptions.members import members, unsubscribe
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.sign_up import MIN_CONFIRMATION_INTERVAL
from storage.unit_of_work import UnitOfWork
from tests.support.lists.subscribers import trace_for
from tests.support.security.people import Request, new_list
from tests.support.security.stopwatch import (
    Stopwatch,
    share_of_slower_first,
    time_requests,
)

STRANGER = Actor(ActorKind.STRANGER, Via.CHALLENGE)


class Person:
    """Acts on a list as the person with this address."""

    def __init__(self, uow: UnitOfWork, list_id: int, email: str) -> None:
        self.uow = uow
        self.email = email
        self.list: MailingList = lists.get_list(uow, list_id)

    def subscribes(self) -> User:
        actor = Actor(ActorKind.USER, Via.LOGIN)
        person = accounts.find_or_create_person(self.uow, self.email)
        sign_up.subscribe_person(self.uow, self.list, person, actor)
        return person

    def asks(self) -> None:
        confirm_required = self.list.confirm_required
        self.list.confirm_required = True
        sign_up.request_subscription(self.uow, self.list, self.email, STRANGER)
        self.list.confirm_required = confirm_required

    def opts_out(self) -> None:
        actor = Actor(ActorKind.USER, Via.TRACE)
        unsubscribe.unsubscribe_member(self.uow, self.list, self.subscribes(), actor)

    def is_removed(self) -> None:
        actor = Actor(ActorKind.OWNER, Via.LOGIN)
        members.remove_member(self.uow, self.list, self.subscribes().id, actor)

    def owns_lists(self) -> None:
        owner = accounts.find_or_create_person(self.uow, self.email)
        slug = f"own-{secrets.token_hex(6)}"
        lists.create_list(self.uow, account_id=owner.account_id, title="Own", slug=slug)

    def is_erased(self) -> None:
        self.opts_out()
        self.uow.session.flush()
        erasure.mark_erased(self.uow, self.email)

    def is_known_elsewhere(self) -> None:
        accounts.create_user(self.uow, email=self.email, name="Known", password="secret-word")

    def is_new(self) -> None: ...


# Maps each relation between a person and a list, such as "pending", to a function that creates it.
KINDS: dict[str, Callable[[Person], object]] = {
    "active": Person.subscribes,
    "pending": Person.asks,
    "opted out": Person.opts_out,
    "removed": Person.is_removed,
    "owner of lists": Person.owns_lists,
    "erased": Person.is_erased,
    "known elsewhere": Person.is_known_elsewhere,
    "new": Person.is_new,
}


def address_of(stack: Stack, list_id: int, kind: str) -> str:
    return addresses_of(stack, list_id, kind, count=1)[0]


def addresses_of(stack: Stack, list_id: int, kind: str, *, count: int) -> list[str]:
    emails = [f"{secrets.token_hex(8)}@example.com" for _ in range(count)]
    with stack.resources.unit_of_work() as uow:
        for email in emails:
            KINDS[kind](Person(uow, list_id, email))
    return emails


def build_traced_requests(list_id: int) -> list[Request]:
    """Return the requests that identify a person by a trace id."""
    return [
        ("DELETE", f"/subscriptions/{list_id}", None),
        ("PUT", f"/subscriptions/{list_id}/email", {"enabled": True}),
        ("POST", f"/subscriptions/{list_id}/delete", None),
        ("GET", "/subscriptions/opponent", None),
    ]


def forge_trace_id(stack: Stack, list_id: int, user_id: int) -> str:
    """Return a trace id that identifies this person, but has a wrong signature."""
    signed, key_id, mac = trace_for(stack, list_id, user_id).split(".")
    return f"{signed}.{key_id}.{'B' if mac[0] == 'A' else 'A'}{mac[1:]}"


def user_ids(stack: Stack, list_id: int) -> dict[str, int]:
    """For each relation in ``KINDS``, create a person who has this relation to the list.

    Map each relation to the user id of the person. Relations such as ``new`` are missing, because
    the person has no user id. The id with the key ``nobody`` belongs to no person.
    """
    ids = {"nobody": secrets.randbelow(2**53)}
    for kind in KINDS:
        email = address_of(stack, list_id, kind)
        for (user_id,) in stack.query("SELECT id FROM users WHERE email = %s", email):
            assert isinstance(user_id, int)
            ids[kind] = user_id
    return ids


PAIR_COUNT = 200
# The test sends pairs of requests: one request for a known address, and one for an unknown address.
# The test passes if the request for the known address is slower in about half of the pairs. The
# share of these pairs may differ from one half by at most MAX_SHARE_DEVIATION.
#
# If requests for known and unknown addresses take equally long, each pair is like the toss of a
# fair coin. A busy machine doesn't change the odds, because the two requests of a pair are sent one
# right after the other, and the order changes from pair to pair. For 200 pairs, a deviation of 0.2
# is 5.6 standard deviations, which chance exceeds once in 50 million test runs.
MAX_SHARE_DEVIATION = 0.2


@pytest.fixture(scope="module")
def list_owner(stack: Stack) -> Owner:
    """A new owner, to whom the mailing lists of the tests belong."""
    return stack.create_owner()


def comparable_reply(reply: httpx2.Response) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Return the reply without its time and its request id, so that two replies can be compared."""
    body = {name: value for name, value in reply.json().items() if name not in _CHANGING_FIELDS}
    headers = {name: value for name, value in reply.headers.items() if name not in _CHANGING_FIELDS}
    return reply.status_code, body, headers


_CHANGING_FIELDS = {"ts", "request_id", "x-request-id", "date"}


@pytest.mark.parametrize("confirm_required", [False, True])
def test_subscribing_returns_the_same_answer_for_every_kind_of_address(
    stack: Stack, list_owner: Owner, stranger: httpx2.Client, confirm_required: bool
) -> None:
    list_id = new_list(stack, list_owner, confirm_required=confirm_required)
    expected = None
    for kind in KINDS:
        email = address_of(stack, list_id, kind)
        for _ in range(2):
            answer = comparable_reply(
                stranger.post(f"/subscriptions/{list_id}", json={"email": email})
            )
            expected = expected or answer
            assert answer == expected, kind
    assert expected is not None
    assert expected[:2] == (200, {"data": 1})


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 422),
        ({"challenge-provider": "turnstile", "challenge-token": "t"}, 422),
        ({"challenge-provider": "hcaptcha", "challenge-token": "t", "challenge-action": "a"}, 422),
        (
            {"challenge-provider": "turnstile", "challenge-token": "no", "challenge-action": "a"},
            403,
        ),
        ({"challenge-token": 5}, 422),
    ],
)
def test_rejected_subscription_returns_the_same_error_for_every_kind_of_address(
    stack: Stack, list_owner: Owner, stranger: httpx2.Client, fields: dict[str, Any], status: int
) -> None:
    challenge_settings = {"challenge_enabled": True, "challenge_provider": "turnstile"}
    list_id = new_list(stack, list_owner, **challenge_settings)
    answers = []
    for kind in KINDS:
        email = address_of(stack, list_id, kind)
        reply = stranger.post(f"/subscriptions/{list_id}", json={"email": email, **fields})
        assert reply.status_code == status, reply.text
        assert email not in reply.text
        answers.append(comparable_reply(reply))
    assert answers == [answers[0]] * len(KINDS)


def test_forged_trace_id_gets_the_same_error_for_every_kind_of_person(
    stack: Stack, list_owner: Owner, stranger: httpx2.Client
) -> None:
    list_id = new_list(stack, list_owner)
    other_list_id = new_list(stack, list_owner)
    people = user_ids(stack, list_id)
    assert {"active", "nobody"} < set(people)
    for method, path, body in build_traced_requests(list_id):
        tokens = [
            forge_trace_id(stack, forged_list_id, user_id)
            for user_id in people.values()
            for forged_list_id in (list_id, other_list_id)
        ]
        if "opponent" not in path:
            # Also try trace ids that are valid, but only for another list.
            tokens += [trace_for(stack, other_list_id, user_id) for user_id in people.values()]
        answers = [
            comparable_reply(stranger.request(method, path, params={"trace_id": token}, json=body))
            for token in tokens
        ]
        assert answers == [answers[0]] * len(answers)
        assert answers[0][0] == 403


def test_other_owners_cannot_find_out_whether_a_person_is_a_member(
    stack: Stack, list_owner: Owner
) -> None:
    list_id = new_list(stack, list_owner)
    people = user_ids(stack, list_id)
    with stack.client(stack.create_owner(plan=Plan.PAID).key) as other_client:
        for method, path, body in (
            ("GET", "/subscriptions/{list_id}/members/{user_id}/subs", None),
            ("GET", "/lists/{list_id}/members/{user_id}/history", None),
            ("GET", "/lists/{list_id}/members/{user_id}/consent", None),
            ("PATCH", "/lists/{list_id}/members/{user_id}", {"name": "x"}),
            ("PUT", "/subscriptions/{list_id}/members/{user_id}/email", {"enabled": True}),
            ("DELETE", "/subscriptions/{list_id}/members/{user_id}", None),
            (
                "POST",
                f"/subscriptions/{{list_id}}/members/{{user_id}}/transfer?dst_list_id={list_id}",
                None,
            ),
        ):
            answers = [
                comparable_reply(
                    other_client.request(
                        method, path.format(list_id=list_id, user_id=each), json=body
                    )
                )
                for each in people.values()
            ]
            assert answers == [answers[0]] * len(answers)
            assert answers[0][0] == 403


def give_address(stack: Stack, list_id: int, email: str) -> dict[str, Any]:
    return {"email": email}


def press_send_again(stack: Stack, list_id: int, email: str) -> dict[str, Any]:
    """Return the form data of the button *Send again* for a sign-up ten minutes ago."""
    moment = clock.now() - MIN_CONFIRMATION_INTERVAL
    answers = SentAnswers(list_id, {"email": email}, moment, moment)
    return {"action": "again", "answers": seal_answers(stack.resources.keyring, answers)}


each_padded_request = pytest.mark.parametrize(
    ("path", "build_body"),
    [
        ("/subscriptions/{list_id}", give_address),
        ("/preferences/ask?list={list_id}", give_address),
        ("/subscribed?list={list_id}", press_send_again),
    ],
)
BuildBody = Callable[[Stack, int, str], dict[str, Any]]


@each_padded_request
def test_requests_of_strangers_never_answer_before_the_padded_duration(
    stack: Stack, list_owner: Owner, path: str, build_body: BuildBody
) -> None:
    list_id = new_list(stack, list_owner)
    watch = Stopwatch(stack)
    address = path.format(list_id=list_id)
    for kind in ("active", "new"):
        [email] = addresses_of(stack, list_id, kind, count=1)
        body = build_body(stack, list_id, email)
        assert watch.seconds("POST", address, body) >= STEP_SECONDS * 0.95


@pytest.mark.tier("timing")
@each_padded_request
def test_requests_of_strangers_take_equally_long_for_member_and_new_address(
    stack: Stack, list_owner: Owner, path: str, build_body: BuildBody
) -> None:
    list_id = new_list(stack, list_owner)
    address = path.format(list_id=list_id)
    # Compare an active member with a new address, because these two differ most in the work that
    # Pressroom does for them.
    known = addresses_of(stack, list_id, "active", count=PAIR_COUNT)
    unknown = addresses_of(stack, list_id, "new", count=PAIR_COUNT)
    requests = [
        (
            ("POST", address, build_body(stack, list_id, known_email)),
            ("POST", address, build_body(stack, list_id, unknown_email)),
        )
        for known_email, unknown_email in zip(known, unknown, strict=True)
    ]
    pairs = time_requests(stack, requests)
    assert min(seconds for pair in pairs for seconds in pair) >= STEP_SECONDS * 0.95
    assert abs(share_of_slower_first(pairs) - 0.5) <= MAX_SHARE_DEVIATION, sorted(pairs)


@pytest.mark.tier("timing")
def test_forged_trace_id_takes_equally_long_for_member_and_unknown_person(
    stack: Stack, list_owner: Owner
) -> None:
    list_id = new_list(stack, list_owner)
    member = user_ids(stack, list_id)["active"]
    requests = build_traced_requests(list_id)
    with ThreadPoolExecutor(len(requests)) as pool:
        timings = list(pool.map(partial(_time_traced_pairs, stack, list_id, member), requests))
    for (method, path, _), pairs in zip(requests, timings, strict=True):
        assert abs(share_of_slower_first(pairs) - 0.5) <= MAX_SHARE_DEVIATION, (method, path)


def _time_traced_pairs(
    stack: Stack, list_id: int, member: int, request: Request
) -> list[tuple[float, float]]:
    method, path, body = request

    def build_request(user_id: int) -> Request:
        return (method, f"{path}?trace_id={forge_trace_id(stack, list_id, user_id)}", body)

    known = build_request(member)
    return Stopwatch(stack).time_pairs(
        [(known, build_request(secrets.randbelow(2**53))) for _ in range(PAIR_COUNT)]
    )


def test_error_that_reveals_nothing_about_people_is_not_delayed(stack: Stack) -> None:
    watch = Stopwatch(stack)
    body = {"email": "reader@example.com"}
    durations = [watch.seconds("POST", "/subscriptions/1", body) for _ in range(20)]
    assert min(durations) < STEP_SECONDS
