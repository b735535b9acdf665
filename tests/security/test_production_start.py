"""One attack of each class on a stack that is started as production is, with the product's bounds.

The files beside this one try each class in depth. Here the defences have to work together, as an
operator gets them.
"""

import csv
import gzip
import io
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg2
import pytest
from psycopg2.errors import InsufficientPrivilege

from api.limits.body_budgets import MAX_UNFINISHED_BODIES
from models import Plan
from tests.authenticator import add_app, begin, send_code
from tests.contract.bulk import add, export, of_addresses, sheet, upload
from tests.contract.credits import CONSUME, grant
from tests.contract.replies import data, problem
from tests.contract.subscribers import new_address as new_reader
from tests.contract.subscribers import new_list, subscribe, trace_for
from tests.contract.test_security_events import PATH
from tests.oauth import Person, register
from tests.security import production
from tests.security.attackers import Attacker, answer_of, attacking, first_answer
from tests.security.production import CONTACT, HOST, Production, event_types, new_ip
from tests.security.test_recovery import Intruder, reset
from tests.security.test_spraying import hold, spray
from tests.security.test_unasked_mails import CONFIRM, PHISHING
from tests.stack import Owner, Stack, eventually
from tests.visiting import PASSWORD, new_account, new_address, user_id_of

MEGABYTE = 1024 * 1024
WRONG = "not the password"
SPRAYED, BEFORE = 60, 46
# The product's defaults, as an operator reads them.
MOST_FREE_LISTS, MOST_FREE_KEYS, MOST_MAILS_AN_HOUR = 5, 10, 6


@pytest.fixture(scope="module")
def live(make_stack: Callable[[str], Stack]) -> Iterator[Production]:
    yield from production.start(make_stack("production"))


@pytest.fixture
def email(live: Production) -> str:
    return new_account(live.stack)


@pytest.fixture
def attacker(live: Production) -> Iterator[Attacker]:
    with attacking(live.stack.api_port, new_ip()) as made:
        yield made


# -- connections and bodies ----------------------------------------------------------------------


def is_served(live: Production, email: str) -> bool:
    """A charge and a login of somebody else, from elsewhere."""
    key = live.stack.new_key(user_id_of(live.stack, email))
    with live.visitor() as person, live.caller(key) as program:
        charge = {"amount_credit": 1, "source_id": "post"}
        answers = person.log_in(email), program.post(CONSUME, json=charge)
        return [each.status_code for each in answers] == [303, 200] and person.is_in()


def test_unfinished_bodies_of_one_address_refuse_that_address_alone(
    live: Production, attacker: Attacker, email: str
) -> None:
    grant(live.stack, user_id_of(live.stack, email), "10")
    unchecked = [
        attacker.begins("POST /composer/metadata", declares=8 * MEGABYTE - 1, sends=64 * 1024)
        for _ in range(32)
    ]
    key = live.stack.new_owner().key
    held = [
        attacker.begins("POST /lists", declares=1024, key=key)
        for _ in range(MAX_UNFINISHED_BODIES + 1)
    ]
    assert first_answer(held) == (429, "body.too_many_unfinished")
    assert is_served(live, email)
    assert {answer_of(each) for each in unchecked} == {(401, "auth.credentials_missing")}


# -- accounts ------------------------------------------------------------------------------------


def test_a_free_account_has_what_is_free(live: Production) -> None:
    owner = live.stack.new_owner(plan=Plan.FREE)
    with live.caller(owner.key) as client:
        lists = [new_list(client)["id"] for _ in range(MOST_FREE_LISTS)]
        more = client.post("/lists", json={"title": "t", "slug": secrets.token_hex(8)})
        problem(more, 403, "quota.exceeded")
        problem(upload(client, lists[0], of_addresses(new_reader())), 403, "plan.required")
        problem(add(client, lists[0], new_reader()), 403, "plan.required")
        keys = [data(client.post("/apikeys", json={"name": "n"}))["key"] for _ in range(9)]
        problem(client.post("/apikeys", json={"name": "n"}), 403, "quota.exceeded")
        assert len([owner.key, *keys]) == MOST_FREE_KEYS
        assert {"plan.refused", "quota.refused", "key.created"} <= event_types(client)

    def count_together() -> bool:
        left = [calls_left(live, key) for key in keys[:3]]
        return left == [left[0], left[0] - 1, left[0] - 2]

    # Unless a minute ends between them.
    eventually(count_together, what="one limit for three keys")


def calls_left(live: Production, key: str) -> int:
    with live.caller(key) as client:
        reply = client.get("/users/me")
    assert reply.headers["ratelimit-policy"] == '"default";q=30000;w=60'
    found = re.search(r";r=(\d+);", reply.headers["ratelimit"])
    assert found
    return int(found[1])


def test_nothing_of_an_intruder_outlasts_a_reset(live: Production, email: str) -> None:
    stack = live.stack
    key = stack.new_key(user_id_of(stack, email))
    with live.visitor() as session, live.visitor() as person:
        assert session.log_in(email).status_code == 303
        program = register(stack)
        owner = Owner(user_id_of(stack, email), email, key)
        tokens = program.tokens(Person(stack, owner, session.client))
        made = session.client.post(
            "/apikeys", json={"name": "mine now"}, headers={"Origin": f"https://{HOST}"}
        )
        with live.caller(data(made)["key"]) as client:
            second = data(client.post("/apikeys", json={"name": "and this"}))
        intruder = Intruder(session, program, tokens, data(made), second)
        assert intruder.ways_in() == {"session", "access token", "key", "second key"}
        assert reset(person, email).status_code == 303
        assert intruder.ways_in() == set()
        assert not intruder.refreshes()
        assert person.is_in()
        seen = event_types(person.client)
    made_and_ended = {
        f"{what}.{done}" for what in ("key", "grant") for done in ("created", "ended")
    }
    assert seen >= made_and_ended | {"login.succeeded", "session.ended", "password.reset"}


def test_a_common_password_is_refused(live: Production) -> None:
    email = new_address()
    with live.visitor() as person:
        person.fill_in("/register", email=email)
        link = person.mailed_path(email, "Finish your registration")
        refused = person.fill_in(link, name="Vi", password="Password1")
        assert refused.status_code == 422
        assert "10,000 most common" in refused.text
        assert not person.is_in()
        assert person.fill_in(link, name="Vi", password=PASSWORD).status_code == 303
        assert person.is_in()


def test_spraying_pauses_its_network_and_no_other(live: Production, email: str) -> None:
    # The first ones without HTTP: each hash of a password takes its time.
    assert spray(live.stack, lambda number: f"198.51.100.{number}", BEFORE) == BEFORE
    with live.visitor("198.51.100.77") as one, live.visitor("198.51.100.78") as two:
        tried = [email, *(new_address() for _ in range(SPRAYED - BEFORE - 1))]
        seen = [
            (one, two)[number % 2].log_in(each, WRONG).status_code
            for number, each in enumerate(tried)
        ]
        assert seen[0] == 403
        assert 429 in seen
        hold(live.stack)
        colleague = new_account(live.stack)
        assert two.log_in(colleague).status_code == 429
    with live.visitor("198.51.101.7") as person:
        assert person.log_in(colleague).status_code == 303
    with live.visitor() as owner:
        assert owner.log_in(email).status_code == 303
        seen_by_owner = data(owner.get(PATH))["items"]
        [failed] = [each for each in seen_by_owner if each["type"] == "login.failed"]
    assert failed["ip"] == "198.51.100.77"


def test_a_password_alone_opens_no_account_with_a_second_factor(
    live: Production, email: str
) -> None:
    with live.visitor() as member, live.visitor() as thief:
        member.log_in(email)
        app = add_app(member)
        page = begin(thief, email)
        assert not thief.is_in()
        assert send_code(thief, page, "000000").status_code == 403
        assert not thief.is_in()
        assert "factor.added" in event_types(member.client)
        assert "login.failed" in event_types(member.client)
        assert send_code(thief, begin(thief, email), app.recovery_codes[0]).status_code == 303
        assert thief.is_in()


# -- readers -------------------------------------------------------------------------------------


def test_a_mailbox_is_not_flooded_and_reads_no_stranger_s_subject(live: Production) -> None:
    name = secrets.token_hex(6)
    forms = [f"{name}+{number}@gmail.com" for number in range(12)]
    with live.caller(live.stack.new_owner().key) as client:
        list_id = new_list(client, confirm_required=True)["id"]
    # Past the rules of titles.
    live.stack.query("UPDATE lists SET title = %s WHERE id = %s", PHISHING, list_id)
    for each in forms:
        # From everywhere.
        with live.caller() as stranger:
            assert data(subscribe(stranger, list_id, each)) == 1
    waiting = "SELECT 1 FROM jobs WHERE lane = 'mail' AND finished_at IS NULL"
    eventually(lambda: not live.stack.query(waiting), within=30, what="the last mail")
    mails = [mail for each in forms for mail in live.stack.mails(each)]
    assert [mail["subject"] for mail in mails] == [CONFIRM] * MOST_MAILS_AN_HOUR
    for mail in mails:
        links = {word for word in mail["text"].split() if "://" in word}
        assert links
        assert all(link.startswith(f"https://{HOST}/") for link in links)
        assert "evil" not in mail["text"] + mail["html"]


def test_a_trace_id_shows_no_address(live: Production) -> None:
    with live.caller(live.stack.new_owner().key) as client, live.caller() as stranger:
        list_id = new_list(client)["id"]
        email = new_reader()
        data(subscribe(stranger, list_id, email))
        trace = {"trace_id": trace_for(live.stack, list_id, user_id_of(live.stack, email))}
        shown = stranger.get("/subscriptions/opponent", params=trace)
        assert data(shown)["sub"]["email"] == f"{email[0]}…@example.com"
        pages = [shown, stranger.get("/unsubscribe", params=trace)]
    for page in pages:
        assert page.status_code == 200
        assert email.partition("@")[0] not in page.text


# -- files and servers ---------------------------------------------------------------------------


def test_files_of_members_run_nothing_and_rest_encrypted(live: Production) -> None:
    formula, email = '=HYPERLINK("https://evil.example","x")', new_reader()
    with live.caller(live.stack.new_owner().key) as client:
        list_id = new_list(client)["id"]
        file = sheet(["Email", "Name"], [email, formula], [f"{email} is none", "x"])
        assert data(upload(client, list_id, file))["result"]["added"] == 1
        done = data(export(client, list_id, "members", Prefer="wait=30"))
        packed = client.get(done["result"]["url"]).content
        assert "export.created" in event_types(client)
    [row] = csv.DictReader(io.StringIO(gzip.decompress(packed).decode(), newline=""))
    assert email in row.values()
    assert f"'{formula}" in row.values()
    assert not [cell for cell in row.values() if cell[:1] in tuple("=+-@\t\r")]
    objects = live.stack.resources.objects
    resting = {each.key: objects.get(each.key) for each in objects.stored()}
    assert {key.partition("/")[0] for key in resting} >= {"exports", "imports"}
    for key, content in resting.items():
        assert email.encode() not in content, key
        assert packed[20:44] not in content, key


def test_the_applications_role_empties_no_table(live: Production) -> None:
    url = live.stack.environment["PRESSROOM_DATABASE_URL"]
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM users")
        connection.commit()
        for table in ("users", "jobs", "events"):
            with pytest.raises(InsufficientPrivilege):
                cursor.execute(f"TRUNCATE {table}")
            connection.rollback()


# -- what everybody gets -------------------------------------------------------------------------


def test_a_login_over_tls_leaves_cookies_of_this_host_alone(live: Production, email: str) -> None:
    with live.visitor() as person:
        reply = person.log_in(email)
        assert person.is_in()
    assert reply.status_code == 303
    cookies = reply.headers.get_list("set-cookie")
    assert any(each.startswith("__Host-pressroom_session=") for each in cookies)
    for each in cookies:
        assert each.startswith("__Host-")
        said = {part.strip().lower() for part in each.split(";")}
        assert said >= {"secure", "httponly", "samesite=lax", "path=/"}
    assert "max-age=" in reply.headers["strict-transport-security"]


def test_the_host_says_whom_to_tell_of_a_hole_and_shows_no_documents(live: Production) -> None:
    with live.caller() as stranger:
        told = stranger.get("/.well-known/security.txt")
        assert told.status_code == 200
        assert f"Contact: {CONTACT}" in told.text
        assert f"Canonical: https://{HOST}/.well-known/security.txt" in told.text
        for path in ("/docs", "/openapi.json"):
            problem(stranger.get(path), 404, "route.not_found")
        problem(stranger.get("/metrics"), 401, "auth.metrics_token")


# The last test of the file: the head began when the stack was ready, so little is left to wait.
def test_half_a_head_is_not_waited_for(live: Production) -> None:
    assert live.half_said.recv(65536) == b""
