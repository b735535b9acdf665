"""Tests attacks on second factors: guesses, replays, races, and misuse of a login's first step."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DomainError
from core.ids import PersonId
from devstack.harness.stack import Stack
from services.accounts import accounts
from services.accounts.factors import passkeys
from tests.support.people.authenticator import (
    APP,
    FACTORS,
    PASSKEY,
    Device,
    add_app,
    add_passkey,
    begin_login,
    log_in_by_passkey,
    make_code_valid_again,
    options_of,
    send_code,
)
from tests.support.people.visiting import (
    OTHER_PASSWORD,
    PASSWORD,
    SESSION_COOKIE,
    Visitor,
    new_account,
    new_visitor,
    read_hidden_fields,
    user_id_of,
)

FIRST_STEP_COOKIE = "pressroom_first_step"
FORM_COOKIE = "pressroom_form"
FORM_PATHS = (
    *("/login", "/login/passkey", "/login/factor", FACTORS, APP, PASSKEY, f"{FACTORS}/codes"),
    *("/register", "/register/confirm", "/password/forgotten", "/password/new"),
)


def send_passkey(visitor: Visitor, page: httpx2.Response, answer: object) -> httpx2.Response:
    form = {**read_hidden_fields(page), "passkey": json.dumps(answer)}
    return visitor.client.post("/login/factor", data=form)


@pytest.fixture
def attacker_browser(make_visitor: Callable[[], Visitor]) -> Visitor:
    """The browser of an attacker who knows the account's password but is not logged in."""
    return make_visitor()


@pytest.fixture(scope="module")
def owner_id(stack: Stack) -> int:
    return stack.create_owner().user_id


@pytest.fixture
def device(stack: Stack) -> Device:
    return Device(stack.api_url)


def test_used_totp_code_is_rejected(
    visitor: Visitor, logged_in_visitor: Visitor, attacker_browser: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    assert (
        send_code(
            attacker_browser, begin_login(attacker_browser, email), app.confirmed_by
        ).status_code
        == 403
    )
    make_code_valid_again(logged_in_visitor, email)
    code = app.code()
    assert send_code(visitor, begin_login(visitor, email), code).status_code == 303
    assert (
        send_code(attacker_browser, begin_login(attacker_browser, email), code).status_code == 403
    )
    assert not attacker_browser.is_logged_in()


@pytest.mark.parametrize("kind", ["app", "recovery"])
def test_only_one_of_concurrent_logins_with_the_same_code_succeeds(
    make_visitor: Callable[[], Visitor], logged_in_visitor: Visitor, email: str, kind: str
) -> None:
    app = add_app(logged_in_visitor)
    make_code_valid_again(logged_in_visitor, email)
    code = app.code() if kind == "app" else app.recovery_codes[0]
    visitors = [make_visitor() for _ in range(4)]
    pages = [begin_login(each, email) for each in visitors]
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(send_code, visitors, pages, [code] * 4))
    assert sorted(each.status_code for each in replies) == [303, 403, 403, 403]
    assert sum(each.is_logged_in() for each in visitors) == 1


def guess_until_paused(stack: Stack, guess: Callable[[int], httpx2.Response]) -> None:
    """Guess codes until Pressroom pauses the guesser's logins, and extend the pause to an hour."""
    statuses: list[int] = []
    while 429 not in statuses:
        reply = guess(len(statuses))
        statuses.append(reply.status_code)
        # Allow more guesses on a slow machine, where the first short pauses end before the next
        # guess.
        assert len(statuses) < 15
    assert statuses[:5] == [403] * 5
    assert set(statuses[5:]) <= {403, 429}
    assert "retry-after" in reply.headers
    # Find the guesser's row by the number of login attempts. A search for ``paused_until`` in the
    # future could find nothing, because on a slow machine a short pause may already be over.
    stack.query(
        "UPDATE login_attempts SET paused_until = now() + interval '1 hour' WHERE attempts >= 5"
    )


def test_code_guessing_pauses_logins_except_in_the_persons_known_browser(
    stack: Stack, make_visitor: Callable[[], Visitor], visitor: Visitor, email: str
) -> None:
    # Log in once with the browser, so that Pressroom knows it as the person's browser.
    visitor.log_in(email)
    app = add_app(visitor)
    make_code_valid_again(visitor, email)

    def guess(number: int) -> httpx2.Response:
        # For each guessed code, open a new browser and log in with the right password. The right
        # password resets the counter of password attempts.
        guesser = make_visitor()
        return send_code(guesser, begin_login(guesser, email), f"{number:06}")

    guess_until_paused(stack, guess)
    attacker = make_visitor()
    reply = send_code(attacker, begin_login(attacker, email), app.code())
    assert reply.status_code == 429
    assert send_code(attacker, reply, app.recovery_codes[0]).status_code == 429
    assert not attacker.is_logged_in()
    # Pressroom counts code attempts in the person's known browser separately from the attacker's
    # code attempts.
    visitor.client.post("/logout", data={"csrf_token": visitor.csrf_token()})
    assert send_code(visitor, begin_login(visitor, email), app.code()).status_code == 303


def test_code_guesses_at_reset_and_login_share_one_limit(
    stack: Stack,
    make_visitor: Callable[[], Visitor],
    logged_in_visitor: Visitor,
    attacker_browser: Visitor,
    email: str,
) -> None:
    app = add_app(logged_in_visitor)
    attacker_browser.fill_in("/password/forgotten", email=email)
    link = attacker_browser.mailed_path(email, "Choose a new password")
    wrong_form = {"password": OTHER_PASSWORD, "code": "000000"}
    guess_until_paused(stack, lambda _: attacker_browser.fill_in(link, **wrong_form))
    right_form = {"password": OTHER_PASSWORD, "code": app.recovery_codes[0]}
    assert attacker_browser.fill_in(link, **right_form).status_code == 429
    other_browser = make_visitor()
    page = begin_login(other_browser, email)
    assert send_code(other_browser, page, app.recovery_codes[0]).status_code == 429
    assert logged_in_visitor.is_logged_in()


def test_cookie_of_first_login_step_is_no_session(
    stack: Stack, logged_in_visitor: Visitor, attacker_browser: Visitor, email: str
) -> None:
    add_app(logged_in_visitor)
    begin_login(attacker_browser, email)
    assert set(attacker_browser.client.cookies) == {FIRST_STEP_COOKIE, FORM_COOKIE}
    first_step = attacker_browser.client.cookies[FIRST_STEP_COOKIE]
    for value in (first_step, first_step.rpartition(".")[2], first_step.partition(".")[2]):
        with new_visitor(stack) as other_browser:
            other_browser.client.cookies.set(SESSION_COOKIE, value)
            assert other_browser.get("/users/me").status_code == 401
            assert other_browser.get("/account").status_code == 303


def test_first_login_step_is_invalid_in_another_browser(
    logged_in_visitor: Visitor,
    attacker_browser: Visitor,
    make_visitor: Callable[[], Visitor],
    email: str,
) -> None:
    app = add_app(logged_in_visitor)
    begin_login(attacker_browser, email)
    other_browser = make_visitor()
    page = other_browser.get("/login")
    other_browser.client.cookies.set(
        FIRST_STEP_COOKIE, attacker_browser.client.cookies[FIRST_STEP_COOKIE]
    )
    assert other_browser.get("/login/factor").headers["location"].endswith("/login?next=%2Fconsole")
    form = {**read_hidden_fields(page), "code": app.recovery_codes[0]}
    reply = other_browser.client.post("/login/factor", data=form)
    assert "/login" in reply.headers["location"]
    assert not other_browser.is_logged_in()


def test_first_login_step_cannot_be_used_for_another_person(
    stack: Stack, logged_in_visitor: Visitor, attacker_browser: Visitor, email: str
) -> None:
    add_app(logged_in_visitor)
    attackers_email = new_account(stack)
    attacker_browser.log_in(attackers_email)
    app = add_app(attacker_browser)
    attacker_browser.client.post("/logout", data={"csrf_token": attacker_browser.csrf_token()})
    page = begin_login(attacker_browser, attackers_email)
    _, _, proof = attacker_browser.client.cookies[FIRST_STEP_COOKIE].partition(".")
    attacker_browser.client.cookies.delete(FIRST_STEP_COOKIE)
    attacker_browser.client.cookies.set(FIRST_STEP_COOKIE, f"{user_id_of(stack, email)}.{proof}")
    assert "/login" in send_code(attacker_browser, page, app.recovery_codes[0]).headers["location"]
    assert not attacker_browser.is_logged_in()


FORGED_FIRST_STEPS = "|.|1|1.2.3|1.2.3.4.5|-1.9.a.b.c|" + "9" * 400 + ".1.a.b.c|٣.1.a.b.c"


def test_forged_first_login_step_is_rejected(attacker_browser: Visitor) -> None:
    page = attacker_browser.get("/login")
    form = {**read_hidden_fields(page), "code": "000000"}
    for value in FORGED_FIRST_STEPS.split("|"):
        form_cookie = attacker_browser.client.cookies[FORM_COOKIE]
        cookie = f"{FORM_COOKIE}={form_cookie}; {FIRST_STEP_COOKIE}={value}"
        headers = {b"Cookie": cookie.encode()}
        reply = attacker_browser.client.post("/login/factor", data=form, headers=headers)
        assert reply.status_code == 303, value
        assert "/login" in reply.headers["location"], value


def test_first_login_step_works_only_once(
    logged_in_visitor: Visitor, attacker_browser: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    page = begin_login(attacker_browser, email)
    first_step = attacker_browser.client.cookies[FIRST_STEP_COOKIE]
    assert send_code(attacker_browser, page, app.recovery_codes[0]).status_code == 303
    assert FIRST_STEP_COOKIE not in attacker_browser.client.cookies
    attacker_browser.client.cookies.delete(SESSION_COOKIE)
    attacker_browser.client.cookies.set(FIRST_STEP_COOKIE, first_step)
    assert "/login" in send_code(attacker_browser, page, app.recovery_codes[1]).headers["location"]
    assert not attacker_browser.is_logged_in()


def test_password_change_invalidates_first_login_step(
    logged_in_visitor: Visitor, attacker_browser: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    page = begin_login(attacker_browser, email)
    passwords = {"current": PASSWORD, "password": OTHER_PASSWORD}
    assert logged_in_visitor.fill_in("/account/password", **passwords).status_code == 303
    assert "/login" in send_code(attacker_browser, page, app.recovery_codes[0]).headers["location"]
    assert not attacker_browser.is_logged_in()


def test_first_login_step_expires_and_cannot_be_prolonged(
    logged_in_visitor: Visitor, attacker_browser: Visitor, email: str
) -> None:
    add_app(logged_in_visitor)
    begin_login(attacker_browser, email)
    first_step = attacker_browser.client.cookies[FIRST_STEP_COOKIE]
    expires_at = int(first_step.split(".")[1])
    page = attacker_browser.get("/login/factor")
    assert "set-cookie" not in page.headers or FIRST_STEP_COOKIE not in page.headers["set-cookie"]
    send_code(attacker_browser, page, "000000")
    assert attacker_browser.client.cookies[FIRST_STEP_COOKIE] == first_step
    prolonged_step = first_step.replace(str(expires_at), str(expires_at + 60))
    attacker_browser.client.cookies.delete(FIRST_STEP_COOKIE)
    attacker_browser.client.cookies.set(FIRST_STEP_COOKIE, prolonged_step)
    assert attacker_browser.get("/login/factor").status_code == 303


def test_login_does_not_adopt_session_cookie_planted_beforehand(
    logged_in_visitor: Visitor,
    attacker_browser: Visitor,
    make_visitor: Callable[[], Visitor],
    email: str,
) -> None:
    app = add_app(logged_in_visitor)
    victim = make_visitor()
    planted_session = "x" * 43
    victim.client.cookies.set(SESSION_COOKIE, planted_session)
    assert send_code(victim, begin_login(victim, email), app.recovery_codes[0]).status_code == 303
    victim.client.cookies.delete(SESSION_COOKIE, domain="")
    attacker_browser.client.cookies.set(SESSION_COOKIE, planted_session)
    assert not attacker_browser.is_logged_in()


def can_log_in(visitor: Visitor, page: httpx2.Response, answer: Any) -> bool:
    """Send a passkey's signed answer to the login, and return whether the visitor is logged in."""
    reply = send_passkey(visitor, page, answer)
    assert reply.status_code in {303, 403}, reply.text
    return reply.status_code == 303 and visitor.is_logged_in()


def test_passkey_of_another_person_is_rejected_as_second_factor(
    stack: Stack, logged_in_visitor: Visitor, attacker_browser: Visitor, email: str, device: Device
) -> None:
    add_passkey(logged_in_visitor, device)
    attackers_device = Device(stack.api_url)
    attackers_email = new_account(stack)
    with new_visitor(stack) as attackers_account:
        attackers_account.log_in(attackers_email)
        add_passkey(attackers_account, attackers_device)
    page = begin_login(attacker_browser, email)
    answer = attackers_device.sign(options_of(page))
    assert not can_log_in(attacker_browser, page, answer)
    # Replace the passkey's id in the attacker's answer by the id of the person's passkey.
    renamed_answer = {**answer, "id": options_of(page)["allowCredentials"][0]["id"]}
    renamed_answer["rawId"] = renamed_answer["id"]
    assert not can_log_in(attacker_browser, page, renamed_answer)


def test_passkey_signature_for_another_origin_is_rejected(
    logged_in_visitor: Visitor, attacker_browser: Visitor, email: str, device: Device
) -> None:
    add_passkey(logged_in_visitor, device)
    own_origin = device.origin
    page = begin_login(attacker_browser, email)
    for origin in ("https://evil.example", "http://127.0.0.1", "http://127.0.0.1:1", "null", ""):
        device.origin = origin
        assert not can_log_in(attacker_browser, page, device.sign(options_of(page))), origin
        assert log_in_by_passkey(attacker_browser, device).status_code == 403, origin
    device.origin = own_origin
    assert can_log_in(attacker_browser, page, device.sign(options_of(page)))


def test_passkey_creation_for_another_origin_is_rejected(
    logged_in_visitor: Visitor, device: Device
) -> None:
    device.origin = "https://evil.example"
    assert add_passkey(logged_in_visitor, device).status_code == 422


def test_passkey_signature_for_another_site_is_rejected(
    logged_in_visitor: Visitor, attacker_browser: Visitor, email: str, device: Device
) -> None:
    add_passkey(logged_in_visitor, device)
    page = begin_login(attacker_browser, email)
    assert not can_log_in(
        attacker_browser, page, device.sign({**options_of(page), "rpId": "evil.example"})
    )


def test_passkey_signature_is_valid_only_once_and_in_one_browser(
    stack: Stack, logged_in_visitor: Visitor, attacker_browser: Visitor
) -> None:
    synced = Device(stack.api_url, counts=False)
    add_passkey(logged_in_visitor, synced)
    with new_visitor(stack) as victim:
        page = victim.get("/login")
        form = {**read_hidden_fields(page, 1), "passkey": json.dumps(synced.sign(options_of(page)))}
        attackers_form = read_hidden_fields(attacker_browser.get("/login"))
        attackers_form["passkey"] = form["passkey"]
        reply = attacker_browser.client.post("/login/passkey", data=attackers_form)
        assert reply.status_code == 403
        assert victim.client.post("/login/passkey", data=form).status_code == 303
        assert victim.client.post("/login/passkey", data=form).status_code == 403
    with new_visitor(stack) as visitor:
        # Sign a challenge that an attacker chose, instead of the challenge of the login page.
        options = {**options_of(visitor.get("/login")), "challenge": "AAAA"}
        form = {
            **read_hidden_fields(visitor.get("/login"), 1),
            "passkey": json.dumps(synced.sign(options)),
        }
        assert visitor.client.post("/login/passkey", data=form).status_code == 403


def test_cloned_passkey_is_rejected_by_its_signature_counter(
    logged_in_visitor: Visitor, attacker_browser: Visitor, device: Device
) -> None:
    add_passkey(logged_in_visitor, device)
    device.uses = 10
    assert log_in_by_passkey(attacker_browser, device).status_code == 303
    device.uses = 5
    assert log_in_by_passkey(attacker_browser, device).status_code == 403


def test_passkey_without_user_verification_cannot_replace_the_password(
    stack: Stack, logged_in_visitor: Visitor, attacker_browser: Visitor, email: str
) -> None:
    stolen_device = Device(stack.api_url, verifies=False)
    add_passkey(logged_in_visitor, stolen_device)
    assert log_in_by_passkey(attacker_browser, stolen_device).status_code == 403
    assert not attacker_browser.is_logged_in()
    page = begin_login(attacker_browser, email)
    assert can_log_in(attacker_browser, page, stolen_device.sign(options_of(page)))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.binary().map(bytes.hex),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=5,
)


@given(
    field=st.sampled_from(["id", "rawId", "type", "response"])
    | st.sampled_from(
        ["clientDataJSON", "authenticatorData", "attestationObject", "signature", "userHandle"]
    ),
    junk=JUNK,
)
def test_malformed_passkey_answer_never_causes_an_unexpected_error(
    stack: Stack, owner_id: int, field: str, junk: object
) -> None:
    """For each malformed passkey answer, Pressroom raises a DomainError, not a library's error."""
    settings = stack.settings()
    device = Device(stack.api_url)
    uow = stack.resources.unit_of_work()
    try:
        person = accounts.get_user(uow, PersonId(owner_id))
        creation_options = json.loads(passkeys.build_creation_options(uow, person, session="s"))
        request_options = json.loads(passkeys.build_request_options(settings, "b"))
        for answer, process_answer in (
            (device.make(creation_options), partial(passkeys.add_passkey, session="s", name="x")),
            (device.sign(request_options), partial(passkeys.verify_passkey, form_cookie="b")),
        ):
            (answer if field in answer else answer["response"])[field] = junk
            with suppress(DomainError):
                process_answer(uow, person_id=PersonId(owner_id), answer=json.dumps(answer))
    finally:
        uow.session.rollback()
        uow.session.close()


@pytest.mark.parametrize("answer", ["", "{", "[" * 9000, "null", "x" * 20_000, '{"id": "\\ud800"}'])
def test_passkey_answer_without_valid_json_is_rejected(
    attacker_browser: Visitor, answer: str
) -> None:
    page = attacker_browser.get("/login")
    form = {**read_hidden_fields(page), "passkey": answer}
    assert attacker_browser.client.post("/login/passkey", data=form).status_code == 403


def test_second_factor_forms_reject_missing_or_forged_csrf_tokens(
    stack: Stack, logged_in_visitor: Visitor, email: str, device: Device
) -> None:
    add_app(logged_in_visitor)
    answer = json.dumps(device.make(options_of(logged_in_visitor.get(PASSKEY))))
    fields = {"email": email, "password": PASSWORD, "remove": "app", "name": "x", "passkey": answer}
    before = stack.query("SELECT user_id FROM totp_secrets UNION ALL SELECT user_id FROM passkeys")
    tokens: tuple[dict[str, str], ...] = ({}, {"csrf_token": "x"}, {"csrf_token": ""})
    origins: tuple[dict[str, str], ...] = ({}, {"Origin": "https://evil.example"})
    for path, token, headers in product(FORM_PATHS, tokens, origins):
        reply = logged_in_visitor.client.post(path, data={**fields, **token}, headers=headers)
        assert reply.status_code == 403, path
        assert "The form has expired, or your browser blocks cookies" in reply.text, path
    assert before == stack.query(
        "SELECT user_id FROM totp_secrets UNION ALL SELECT user_id FROM passkeys"
    )


def test_second_factor_pages_run_only_our_own_scripts(logged_in_visitor: Visitor) -> None:
    add_app(logged_in_visitor)
    for path, allowed in (("/login?again=yes", "'sha256-"), (PASSKEY, "'self';"), (APP, "'self';")):
        reply = logged_in_visitor.get(path)
        policy = reply.headers["content-security-policy"]
        assert f"script-src {allowed}" in policy
        assert ("<script>" in reply.text) == (allowed != "'self';")
        assert "unsafe" not in policy
