"""Second factors: what people set up beside their password, and when it is asked for."""

import json
from collections.abc import Callable

import httpx2
import pytest

from core.errors import DomainError
from core.keyring import Key, Keyring
from devstack.harness.stack import Stack
from services.access import sessions
from services.accounts.factors import totp
from storage.encryption import KeyWrapper
from tests.support.commands.running import printed
from tests.support.http.replies import data, problem
from tests.support.people.authenticator import (
    APP,
    FACTORS,
    PASSKEY,
    Device,
    add_app,
    add_passkey,
    begin,
    codes_of,
    let_half_a_minute_pass,
    log_in_by_passkey,
    options_of,
    send_code,
)
from tests.support.people.visiting import (
    OTHER_PASSWORD,
    PASSWORD,
    SESSION,
    Visitor,
    age_logins,
    hidden,
    new_account,
    user_id_of,
)

CHANGED = "Your second factors were changed"


@pytest.fixture
def device(stack: Stack) -> Device:
    """A simulated device that creates passkeys."""
    return Device(stack.api_url)


def location(reply: httpx2.Response) -> str:
    assert reply.status_code == 303, reply.text
    return reply.headers["location"]


def test_login_requires_the_code_of_the_authenticator_app(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    let_half_a_minute_pass(logged_in_visitor, email)
    asked = begin(visitor, email, next="/account/events")
    assert SESSION not in visitor.client.cookies
    assert not visitor.is_in()
    assert send_code(visitor, asked, "000000").status_code == 403
    assert location(send_code(visitor, asked, app.code())) == f"{stack.api_url}/account/events"
    assert data(visitor.get("/users/me"))["email"] == email
    # The owner sees the new factor and the wrong code.
    found = data(visitor.get("/users/me/security-events"))["items"]
    told = [(each["type"], each["detail"]) for each in reversed(found)]
    assert told[-3:-1] == [("factor.added", {"factor": "app"}), ("login.failed", {"attempts": 1})]
    assert told[-1][0] == "login.succeeded"
    # No program is asked for one.
    with stack.client(stack.create_key(user_id_of(stack, email))) as program:
        data(program.get("/users/me"))


def test_authenticator_app_is_added_only_with_a_valid_code(logged_in_visitor: Visitor) -> None:
    shown = logged_in_visitor.get(APP)
    assert "<svg" in shown.text
    wrong = logged_in_visitor.client.post(APP, data={**hidden(shown), "code": "000000"})
    assert wrong.status_code == 422
    assert '<span class="wrong" role="alert" id="code-problem">This code is wrong' in wrong.text
    # The same secret, which the app has by now.
    assert hidden(wrong)["secret"] == hidden(shown)["secret"]
    other = {**hidden(shown), "secret": totp.create_secret(), "code": "000000"}
    assert location(logged_in_visitor.client.post(APP, data=other)).endswith(APP)
    assert "You have no second factor yet" in logged_in_visitor.get(FACTORS).text


def test_encryption_key_rotation_rewraps_authenticator_secrets(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    let_half_a_minute_pass(logged_in_visitor, email)
    new = Key("rotated", b"r" * 32)
    old = stack.settings().encryption_keyring
    rotated = KeyWrapper(Keyring([new, *old]))
    alone = KeyWrapper(Keyring([new]))
    user_id = user_id_of(stack, email)
    uow = stack.resources.unit_of_work()
    try:
        assert totp.rewrap_secrets(uow, rotated) >= 1
        uow.session.flush()
        uow.session.expire_all()
        assert totp.accept_code(uow, alone, user_id, app.code())
    finally:
        # The stack's processes don't know the new key.
        uow.session.rollback()
        uow.session.close()


def test_recovery_code_replaces_the_authenticator_app_only_once(
    make_visitor: Callable[[], Visitor], logged_in_visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    assert len(set(app.recovery_codes)) == 10
    visitor = make_visitor()
    typed = f" {app.recovery_codes[0].upper().replace('-', ' ')} "
    location(send_code(visitor, begin(visitor, email), typed))
    assert visitor.is_in()
    assert "A recovery code was used" in visitor.mailed(email, CHANGED, number=2)
    assert "You have 9 codes left" in visitor.get(FACTORS).text
    again = make_visitor()
    assert send_code(again, begin(again, email), app.recovery_codes[0]).status_code == 403
    assert not again.is_in()


def test_new_recovery_codes_revoke_the_old_ones(
    logged_in_visitor: Visitor, visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    form = {"csrf_token": logged_in_visitor.csrf_token()}
    made = codes_of(logged_in_visitor.client.post(f"{FACTORS}/codes", data=form))
    assert len(made) == 10
    asked = begin(visitor, email)
    assert send_code(visitor, asked, app.recovery_codes[0]).status_code == 403
    location(send_code(visitor, asked, made[0]))


def test_recovery_codes_are_shown_only_when_the_first_factor_is_added(
    logged_in_visitor: Visitor, device: Device
) -> None:
    app = add_app(logged_in_visitor)
    assert codes_of(add_passkey(logged_in_visitor, device)) == []
    assert not any(code in logged_in_visitor.get(FACTORS).text for code in app.recovery_codes)


def test_passkey_without_signature_counter_works_repeatedly(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor
) -> None:
    synced = Device(stack.api_url, counts=False)
    add_passkey(logged_in_visitor, synced)
    for _ in range(2):
        location(log_in_by_passkey(visitor, synced))


def test_passkey_is_registered_only_once_and_a_person_has_at_most_20(
    stack: Stack, logged_in_visitor: Visitor, device: Device, email: str
) -> None:
    add_passkey(logged_in_visitor, device)
    assert add_passkey(logged_in_visitor, device).status_code == 409
    stack.query(
        "INSERT INTO passkeys (user_id, name, credential_id, public_key, sign_count)"
        " SELECT %s, 'old', sha256(concat(%s, n)::bytea), '', 0 FROM generate_series(1, 19) n",
        *(user_id_of(stack, email),) * 2,
    )
    late = add_passkey(logged_in_visitor, Device(stack.api_url))
    assert late.status_code == 409
    assert "at most 20 passkeys" in late.text


def test_passkey_requires_a_name(logged_in_visitor: Visitor, device: Device) -> None:
    assert add_passkey(logged_in_visitor, device, name=" ").status_code == 422


def test_every_change_of_second_factors_is_reported_by_mail(
    logged_in_visitor: Visitor, email: str, device: Device
) -> None:
    add_app(logged_in_visitor)
    assert "An authenticator app was added" in logged_in_visitor.mailed(email, CHANGED)
    add_passkey(logged_in_visitor, device, name="https://evil.example")
    told = logged_in_visitor.mailed(email, CHANGED, number=2)
    assert "A passkey was added" in told
    assert "evil" not in told
    # Not one goes missing, however many there are.
    for number in range(3, 7):
        form = {"csrf_token": logged_in_visitor.csrf_token()}
        assert logged_in_visitor.client.post(f"{FACTORS}/codes", data=form).status_code == 200
        logged_in_visitor.mailed(email, CHANGED, number=number)


def test_removing_the_last_second_factor_deletes_the_recovery_codes(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str, device: Device
) -> None:
    add_app(logged_in_visitor)
    add_passkey(logged_in_visitor, device)
    user_id = user_id_of(stack, email)
    [(passkey_id,)] = stack.query("SELECT id FROM passkeys WHERE user_id = %s", user_id)
    count = "SELECT count(*) FROM recovery_codes WHERE user_id = %s"
    for wanted, left in (("app", 10), (str(passkey_id), 0)):
        form = {"csrf_token": logged_in_visitor.csrf_token(), "remove": wanted}
        location(logged_in_visitor.client.post(FACTORS, data=form))
        assert stack.query(count, user_id) == [(left,)]
    assert log_in_by_passkey(visitor, device).status_code == 403
    assert visitor.log_in(email).status_code == 303
    assert visitor.is_in()
    form = {"csrf_token": logged_in_visitor.csrf_token(), "remove": "app"}
    assert logged_in_visitor.client.post(FACTORS, data=form).status_code == 404


def test_person_cannot_remove_second_factors_of_another_person(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, device: Device
) -> None:
    other = new_account(stack)
    visitor.log_in(other)
    add_passkey(visitor, device)
    [(passkey_id,)] = stack.query(
        "SELECT id FROM passkeys WHERE user_id = %s", user_id_of(stack, other)
    )
    for wanted in (str(passkey_id), "x", "9" * 16, "9" * 99):
        form = {"csrf_token": logged_in_visitor.csrf_token(), "remove": wanted}
        assert logged_in_visitor.client.post(FACTORS, data=form).status_code == 404
    assert location(log_in_by_passkey(visitor, device)).endswith("/console")


@pytest.mark.parametrize("path", [APP, PASSKEY, FACTORS, f"{FACTORS}/codes"])
def test_second_factor_changes_require_a_recent_login(
    stack: Stack, logged_in_visitor: Visitor, email: str, path: str
) -> None:
    token = logged_in_visitor.csrf_token()
    age_logins(stack, email, 15)
    again = f"{stack.api_url}/login?again=yes"
    if path in {APP, PASSKEY}:
        assert location(logged_in_visitor.get(path)).startswith(again)
    form = {"csrf_token": token, "remove": "app"}
    assert location(logged_in_visitor.client.post(path, data=form)).startswith(again)


def test_repeated_login_asks_for_the_second_factor_and_counts_as_recent(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    age_logins(stack, email, 15)
    asked = location(logged_in_visitor.get(PASSKEY)).removeprefix(stack.api_url)
    before = logged_in_visitor.cookie
    second = logged_in_visitor.fill_in(asked, email=email, password=PASSWORD)
    assert second.status_code == 403
    # The person stays logged in meanwhile, and no better than before.
    assert logged_in_visitor.cookie == before
    assert location(logged_in_visitor.get(PASSKEY)).removeprefix(stack.api_url) == asked
    passed = send_code(logged_in_visitor, second, app.recovery_codes[0])
    assert location(passed) == stack.api_url + PASSKEY
    assert logged_in_visitor.get(PASSKEY).status_code == 200


def test_operator_must_set_up_a_second_factor_before_any_other_action(
    stack: Stack, visitor: Visitor, email: str
) -> None:
    assert printed(stack, "users", "operator", email, "on")["is_operator"] is True
    visitor.log_in(email)
    for path in ("/account", "/console/developers/keys", "/account/password"):
        assert location(visitor.get(path)) == stack.api_url + FACTORS
    problem(visitor.get("/users/me"), 403, "auth.second_factor")
    origin = {"Origin": stack.api_url}
    made = visitor.client.post("/apikeys", json={"name": "k"}, headers=origin)
    problem(made, 403, "auth.second_factor")
    token = hidden(visitor.get(FACTORS))["csrf_token"]
    keys = visitor.client.post(
        "/console/developers/keys/new", data={"csrf_token": token, "name": "k"}
    )
    assert location(keys) == stack.api_url + FACTORS
    assert "Your account requires a second factor" in visitor.get(FACTORS).text
    add_app(visitor)
    assert visitor.is_in()
    assert visitor.get("/account").status_code == 200


def test_deployment_setting_requires_a_second_factor_of_everyone(
    stack: Stack, logged_in_visitor: Visitor
) -> None:
    resources = stack.resources
    opened = (resources.database, resources.keyring, logged_in_visitor.cookie)
    with pytest.raises(DomainError, match="second factor"):
        sessions.authenticate_session(*opened, everyone_needs_factor=True)
    assert sessions.authenticate_session(*opened, everyone_needs_factor=False).session_id
    add_app(logged_in_visitor)
    assert sessions.authenticate_session(*opened, everyone_needs_factor=True).session_id


def reset_link(visitor: Visitor, email: str) -> str:
    visitor.fill_in("/password/forgotten", email=email)
    return visitor.mailed_path(email, "Choose a new password")


def test_password_reset_requires_the_second_factor(
    logged_in_visitor: Visitor, visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    link = reset_link(visitor, email)
    for code in ("", "000000", "abcde-fghij"):
        error = visitor.fill_in(link, password=OTHER_PASSWORD, code=code)
        assert error.status_code == 403
        assert "Choose a new password" in error.text
    assert logged_in_visitor.is_in()
    assert visitor.fill_in(link, password="short", code=app.recovery_codes[0]).status_code == 422
    passed = visitor.fill_in(link, password=OTHER_PASSWORD, code=app.recovery_codes[0])
    assert location(passed).endswith("/account")
    assert visitor.is_in()
    assert not logged_in_visitor.is_in()


def test_password_reset_accepts_a_passkey_and_removes_the_ticked_passkeys(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str, device: Device
) -> None:
    lost = Device(stack.api_url)
    add_passkey(logged_in_visitor, device, name="Mine")
    add_passkey(logged_in_visitor, lost, name="Lost")
    shown = visitor.get(reset_link(visitor, email))
    [(ended,)] = stack.query("SELECT id FROM passkeys WHERE name = 'Lost'")
    assert shown.text.count('name="end_passkey.') == shown.text.count(" checked") == 2
    form = {**hidden(shown), "password": OTHER_PASSWORD, f"end_passkey.{ended}": "on"}
    form["passkey"] = json.dumps(device.sign(options_of(shown)))
    location(visitor.client.post("/password/new", data=form))
    assert visitor.is_in()
    own = "SELECT name FROM passkeys WHERE user_id = %s"
    assert stack.query(own, user_id_of(stack, email)) == [("Mine",)]


def test_password_reset_removes_every_passkey_that_its_page_did_not_show(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str, device: Device
) -> None:
    """Also those that an intruder makes while the person reads the page."""
    codes = codes_of(add_passkey(logged_in_visitor, device))
    shown = visitor.get(reset_link(visitor, email))
    add_passkey(logged_in_visitor, Device(stack.api_url))
    form = {**hidden(shown), "password": OTHER_PASSWORD, "code": codes[0], "shown_passkeys": ""}
    location(visitor.client.post("/password/new", data=form))
    own = "SELECT count(*) FROM passkeys WHERE user_id = %s"
    assert stack.query(own, user_id_of(stack, email)) == [(0,)]


def test_password_change_removes_a_passkey_only_if_ticked(
    stack: Stack, logged_in_visitor: Visitor, email: str, device: Device
) -> None:
    add_passkey(logged_in_visitor, device)
    [(passkey_id,)] = stack.query(
        "SELECT id FROM passkeys WHERE user_id = %s", user_id_of(stack, email)
    )
    own = "SELECT count(*) FROM passkeys WHERE user_id = %s"
    shown = logged_in_visitor.get("/account/password")
    assert f'name="end_passkey.{passkey_id}"' in shown.text
    assert " checked" not in shown.text
    path = "/account/password"
    passwords = {"current": PASSWORD, "password": OTHER_PASSWORD}
    location(logged_in_visitor.fill_in(path, **passwords))
    assert stack.query(own, user_id_of(stack, email)) == [(1,)]
    passwords = {"current": OTHER_PASSWORD, "password": PASSWORD}
    location(logged_in_visitor.fill_in(path, **passwords, **{f"end_passkey.{passkey_id}": "on"}))
    assert stack.query(own, user_id_of(stack, email)) == [(0,)]


def test_undone_address_change_removes_second_factors_added_after_the_change(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str, device: Device
) -> None:
    """Otherwise the new password would need the intruder's app."""
    add_passkey(logged_in_visitor, device, name="Before")
    new = f"intruder.{email}"
    logged_in_visitor.fill_in("/account/email", email=new, current=PASSWORD)
    location(
        logged_in_visitor.fill_in(logged_in_visitor.mailed_path(new, "Confirm your new address"))
    )
    add_app(logged_in_visitor)
    add_passkey(logged_in_visitor, Device(stack.api_url), name="After")
    undo = visitor.mailed_path(email, "The address of your account was changed")
    choosing = location(visitor.fill_in(undo)).removeprefix(stack.api_url)
    user_id = user_id_of(stack, email)
    assert stack.query("SELECT 1 FROM totp_secrets WHERE user_id = %s", user_id) == []
    assert stack.query("SELECT name FROM passkeys WHERE user_id = %s", user_id) == [("Before",)]
    shown = visitor.get(choosing)
    form = {**hidden(shown), "password": OTHER_PASSWORD}
    form["passkey"] = json.dumps(device.sign(options_of(shown)))
    location(visitor.client.post(choosing, data=form))
    assert visitor.is_in()


def test_operator_removes_all_second_factors_and_the_person_is_notified_by_mail(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str, device: Device
) -> None:
    app = add_app(logged_in_visitor)
    add_passkey(logged_in_visitor, device)
    asked = begin(visitor, email)
    printed(stack, "users", "reset-factors", email)
    assert "The operator of this service removed" in visitor.mailed(email, CHANGED, number=3)
    # What was begun before leads nowhere: the password is asked for once more, and alone.
    late = send_code(visitor, asked, app.recovery_codes[0])
    assert "/login" in location(late)
    assert not visitor.is_in()
    assert visitor.log_in(email).status_code == 303
    assert visitor.is_in()
