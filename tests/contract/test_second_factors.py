"""Tests of second factors: authenticator apps, passkeys and recovery codes."""

import json
from collections.abc import Callable

import httpx2
import pytest

from core.errors import DomainError
from core.ids import PersonId
from core.keyring import Key, Keyring
from devstack.harness.stack import Stack
from services.access import sessions
from services.accounts.factors import totp
from storage.encryption import KeyWrapper
from tests.support.commands.running import run_json_command
from tests.support.http.replies import data, problem
from tests.support.people.authenticator import (
    APP,
    FACTORS,
    PASSKEY,
    Device,
    add_app,
    add_passkey,
    begin_login,
    codes_of,
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
    age_logins,
    new_account,
    read_hidden_fields,
    user_id_of,
)

CHANGE_SUBJECT = "Your second factors were changed"


@pytest.fixture
def device(stack: Stack) -> Device:
    """A simulated device that creates passkeys."""
    return Device(stack.api_url)


def read_location(reply: httpx2.Response) -> str:
    assert reply.status_code == 303, reply.text
    return reply.headers["location"]


def test_login_requires_the_code_of_the_authenticator_app(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    make_code_valid_again(logged_in_visitor, email)
    code_page = begin_login(visitor, email, next="/account/events")
    assert SESSION_COOKIE not in visitor.client.cookies
    assert not visitor.is_logged_in()
    assert send_code(visitor, code_page, "000000").status_code == 403
    assert (
        read_location(send_code(visitor, code_page, app.code()))
        == f"{stack.api_url}/account/events"
    )
    assert data(visitor.get("/users/me"))["email"] == email
    # The owner sees the new factor and the wrong code.
    events = data(visitor.get("/users/me/security-events"))["items"]
    types_and_details = [(event["type"], event["detail"]) for event in reversed(events)]
    assert types_and_details[-3:-1] == [
        ("factor.added", {"factor": "app"}),
        ("login.failed", {"attempts": 1}),
    ]
    assert types_and_details[-1][0] == "login.succeeded"
    # Requests with an API key need no second factor.
    with stack.client(stack.create_key(user_id_of(stack, email))) as program:
        data(program.get("/users/me"))


def test_authenticator_app_is_added_only_with_a_valid_code(logged_in_visitor: Visitor) -> None:
    setup_page = logged_in_visitor.get(APP)
    assert "<svg" in setup_page.text
    wrong_code_page = logged_in_visitor.client.post(
        APP, data={**read_hidden_fields(setup_page), "code": "000000"}
    )
    assert wrong_code_page.status_code == 422
    assert (
        '<span class="wrong" role="alert" id="code-problem">This code is wrong'
        in wrong_code_page.text
    )
    # The page shows the same secret again, because the person's authenticator app already stores
    # this secret.
    assert read_hidden_fields(wrong_code_page)["secret"] == read_hidden_fields(setup_page)["secret"]
    form_with_other_secret = {
        **read_hidden_fields(setup_page),
        "secret": totp.create_secret(),
        "code": "000000",
    }
    assert read_location(logged_in_visitor.client.post(APP, data=form_with_other_secret)).endswith(
        APP
    )
    assert "You have no second factor yet" in logged_in_visitor.get(FACTORS).text


def test_encryption_key_rotation_rewraps_authenticator_secrets(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    make_code_valid_again(logged_in_visitor, email)
    new_key = Key("rotated", b"r" * 32)
    old_keys = stack.settings().encryption_keyring
    rotated_wrapper = KeyWrapper(Keyring([new_key, *old_keys]))
    new_key_wrapper = KeyWrapper(Keyring([new_key]))
    user_id = user_id_of(stack, email)
    uow = stack.resources.unit_of_work()
    try:
        assert totp.rewrap_secrets(uow, rotated_wrapper) >= 1
        uow.session.flush()
        uow.session.expire_all()
        assert totp.accept_code(uow, new_key_wrapper, PersonId(user_id), app.code())
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
    typed_code = f" {app.recovery_codes[0].upper().replace('-', ' ')} "
    read_location(send_code(visitor, begin_login(visitor, email), typed_code))
    assert visitor.is_logged_in()
    assert "A recovery code was used" in visitor.mailed(email, CHANGE_SUBJECT, number=2)
    assert "You have 9 codes left" in visitor.get(FACTORS).text
    second_visitor = make_visitor()
    assert (
        send_code(
            second_visitor, begin_login(second_visitor, email), app.recovery_codes[0]
        ).status_code
        == 403
    )
    assert not second_visitor.is_logged_in()


def test_new_recovery_codes_revoke_the_old_ones(
    logged_in_visitor: Visitor, visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    form = {"csrf_token": logged_in_visitor.csrf_token()}
    new_codes = codes_of(logged_in_visitor.client.post(f"{FACTORS}/codes", data=form))
    assert len(new_codes) == 10
    code_page = begin_login(visitor, email)
    assert send_code(visitor, code_page, app.recovery_codes[0]).status_code == 403
    read_location(send_code(visitor, code_page, new_codes[0]))


def test_recovery_codes_are_shown_only_when_the_first_factor_is_added(
    logged_in_visitor: Visitor, device: Device
) -> None:
    app = add_app(logged_in_visitor)
    assert codes_of(add_passkey(logged_in_visitor, device)) == []
    assert not any(code in logged_in_visitor.get(FACTORS).text for code in app.recovery_codes)


def test_passkey_without_signature_counter_works_repeatedly(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor
) -> None:
    synced_device = Device(stack.api_url, counts=False)
    add_passkey(logged_in_visitor, synced_device)
    for _ in range(2):
        read_location(log_in_by_passkey(visitor, synced_device))


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
    reply = add_passkey(logged_in_visitor, Device(stack.api_url))
    assert reply.status_code == 409
    assert "at most 20 passkeys" in reply.text


def test_passkey_requires_a_name(logged_in_visitor: Visitor, device: Device) -> None:
    assert add_passkey(logged_in_visitor, device, name=" ").status_code == 422


def test_every_change_of_second_factors_is_reported_by_mail(
    logged_in_visitor: Visitor, email: str, device: Device
) -> None:
    add_app(logged_in_visitor)
    assert "An authenticator app was added" in logged_in_visitor.mailed(email, CHANGE_SUBJECT)
    add_passkey(logged_in_visitor, device, name="https://evil.example")
    mail_text = logged_in_visitor.mailed(email, CHANGE_SUBJECT, number=2)
    assert "A passkey was added" in mail_text
    assert "evil" not in mail_text
    # Each time the person gets new recovery codes, Pressroom sends another mail.
    for mail_number in range(3, 7):
        form = {"csrf_token": logged_in_visitor.csrf_token()}
        assert logged_in_visitor.client.post(f"{FACTORS}/codes", data=form).status_code == 200
        logged_in_visitor.mailed(email, CHANGE_SUBJECT, number=mail_number)


def test_removing_the_last_second_factor_deletes_the_recovery_codes(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str, device: Device
) -> None:
    add_app(logged_in_visitor)
    add_passkey(logged_in_visitor, device)
    user_id = user_id_of(stack, email)
    [(passkey_id,)] = stack.query("SELECT id FROM passkeys WHERE user_id = %s", user_id)
    count_codes = "SELECT count(*) FROM recovery_codes WHERE user_id = %s"
    for factor, remaining_codes in (("app", 10), (str(passkey_id), 0)):
        form = {"csrf_token": logged_in_visitor.csrf_token(), "remove": factor}
        read_location(logged_in_visitor.client.post(FACTORS, data=form))
        assert stack.query(count_codes, user_id) == [(remaining_codes,)]
    assert log_in_by_passkey(visitor, device).status_code == 403
    assert visitor.log_in(email).status_code == 303
    assert visitor.is_logged_in()
    form = {"csrf_token": logged_in_visitor.csrf_token(), "remove": "app"}
    assert logged_in_visitor.client.post(FACTORS, data=form).status_code == 404


def test_person_cannot_remove_second_factors_of_another_person(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, device: Device
) -> None:
    other_email = new_account(stack)
    visitor.log_in(other_email)
    add_passkey(visitor, device)
    [(passkey_id,)] = stack.query(
        "SELECT id FROM passkeys WHERE user_id = %s", user_id_of(stack, other_email)
    )
    for factor in (str(passkey_id), "x", "9" * 16, "9" * 99):
        form = {"csrf_token": logged_in_visitor.csrf_token(), "remove": factor}
        assert logged_in_visitor.client.post(FACTORS, data=form).status_code == 404
    assert read_location(log_in_by_passkey(visitor, device)).endswith("/console")


@pytest.mark.parametrize("path", [APP, PASSKEY, FACTORS, f"{FACTORS}/codes"])
def test_second_factor_changes_require_a_recent_login(
    stack: Stack, logged_in_visitor: Visitor, email: str, path: str
) -> None:
    csrf_token = logged_in_visitor.csrf_token()
    age_logins(stack, email, 15)
    login_url = f"{stack.api_url}/login?again=yes"
    if path in {APP, PASSKEY}:
        assert read_location(logged_in_visitor.get(path)).startswith(login_url)
    form = {"csrf_token": csrf_token, "remove": "app"}
    assert read_location(logged_in_visitor.client.post(path, data=form)).startswith(login_url)


def test_repeated_login_asks_for_the_second_factor_and_counts_as_recent(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    age_logins(stack, email, 15)
    login_path = read_location(logged_in_visitor.get(PASSKEY)).removeprefix(stack.api_url)
    cookie_before = logged_in_visitor.cookie
    code_page = logged_in_visitor.fill_in(login_path, email=email, password=PASSWORD)
    assert code_page.status_code == 403
    # Until the person enters a second factor, the earlier session remains valid, but actions that
    # require a recent login redirect to the login page.
    assert logged_in_visitor.cookie == cookie_before
    assert read_location(logged_in_visitor.get(PASSKEY)).removeprefix(stack.api_url) == login_path
    reply = send_code(logged_in_visitor, code_page, app.recovery_codes[0])
    assert read_location(reply) == stack.api_url + PASSKEY
    assert logged_in_visitor.get(PASSKEY).status_code == 200


def test_operator_must_set_up_a_second_factor_before_any_other_action(
    stack: Stack, visitor: Visitor, email: str
) -> None:
    assert run_json_command(stack, "users", "operator", email, "on")["is_operator"] is True
    visitor.log_in(email)
    for path in ("/account", "/console/developers/keys", "/account/password"):
        assert read_location(visitor.get(path)) == stack.api_url + FACTORS
    problem(visitor.get("/users/me"), 403, "auth.second_factor")
    origin = {"Origin": stack.api_url}
    api_reply = visitor.client.post("/apikeys", json={"name": "k"}, headers=origin)
    problem(api_reply, 403, "auth.second_factor")
    csrf_token = read_hidden_fields(visitor.get(FACTORS))["csrf_token"]
    console_reply = visitor.client.post(
        "/console/developers/keys/new", data={"csrf_token": csrf_token, "name": "k"}
    )
    assert read_location(console_reply) == stack.api_url + FACTORS
    assert "Your account requires a second factor" in visitor.get(FACTORS).text
    add_app(visitor)
    assert visitor.is_logged_in()
    assert visitor.get("/account").status_code == 200


def test_deployment_setting_requires_a_second_factor_of_everyone(
    stack: Stack, logged_in_visitor: Visitor
) -> None:
    resources = stack.resources
    session_arguments = (resources.database, resources.keyring, logged_in_visitor.cookie)
    with pytest.raises(DomainError, match="second factor"):
        sessions.authenticate_session(*session_arguments, everyone_needs_factor=True)
    assert sessions.authenticate_session(*session_arguments, everyone_needs_factor=False).session_id
    add_app(logged_in_visitor)
    assert sessions.authenticate_session(*session_arguments, everyone_needs_factor=True).session_id


def reset_link(visitor: Visitor, email: str) -> str:
    visitor.fill_in("/password/forgotten", email=email)
    return visitor.mailed_path(email, "Choose a new password")


def test_password_reset_requires_the_second_factor(
    logged_in_visitor: Visitor, visitor: Visitor, email: str
) -> None:
    app = add_app(logged_in_visitor)
    link = reset_link(visitor, email)
    for code in ("", "000000", "abcde-fghij"):
        error_page = visitor.fill_in(link, password=OTHER_PASSWORD, code=code)
        assert error_page.status_code == 403
        assert "Choose a new password" in error_page.text
    assert logged_in_visitor.is_logged_in()
    assert visitor.fill_in(link, password="short", code=app.recovery_codes[0]).status_code == 422
    reply = visitor.fill_in(link, password=OTHER_PASSWORD, code=app.recovery_codes[0])
    assert read_location(reply).endswith("/account")
    assert visitor.is_logged_in()
    assert not logged_in_visitor.is_logged_in()


def test_password_reset_accepts_a_passkey_and_removes_the_ticked_passkeys(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str, device: Device
) -> None:
    lost_device = Device(stack.api_url)
    add_passkey(logged_in_visitor, device, name="Mine")
    add_passkey(logged_in_visitor, lost_device, name="Lost")
    reset_page = visitor.get(reset_link(visitor, email))
    [(lost_passkey_id,)] = stack.query("SELECT id FROM passkeys WHERE name = 'Lost'")
    assert reset_page.text.count('name="end_passkey.') == reset_page.text.count(" checked") == 2
    form = {
        **read_hidden_fields(reset_page),
        "password": OTHER_PASSWORD,
        f"end_passkey.{lost_passkey_id}": "on",
    }
    form["passkey"] = json.dumps(device.sign(options_of(reset_page)))
    read_location(visitor.client.post("/password/new", data=form))
    assert visitor.is_logged_in()
    select_names = "SELECT name FROM passkeys WHERE user_id = %s"
    assert stack.query(select_names, user_id_of(stack, email)) == [("Mine",)]


def test_password_reset_removes_every_passkey_that_its_page_did_not_show(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str, device: Device
) -> None:
    """An intruder may add a passkey while the person is typing a new password on the page."""
    codes = codes_of(add_passkey(logged_in_visitor, device))
    reset_page = visitor.get(reset_link(visitor, email))
    add_passkey(logged_in_visitor, Device(stack.api_url))
    form = {
        **read_hidden_fields(reset_page),
        "password": OTHER_PASSWORD,
        "code": codes[0],
        "shown_passkeys": "",
    }
    read_location(visitor.client.post("/password/new", data=form))
    count_passkeys = "SELECT count(*) FROM passkeys WHERE user_id = %s"
    assert stack.query(count_passkeys, user_id_of(stack, email)) == [(0,)]


def test_password_change_removes_a_passkey_only_if_ticked(
    stack: Stack, logged_in_visitor: Visitor, email: str, device: Device
) -> None:
    add_passkey(logged_in_visitor, device)
    [(passkey_id,)] = stack.query(
        "SELECT id FROM passkeys WHERE user_id = %s", user_id_of(stack, email)
    )
    count_passkeys = "SELECT count(*) FROM passkeys WHERE user_id = %s"
    password_page = logged_in_visitor.get("/account/password")
    assert f'name="end_passkey.{passkey_id}"' in password_page.text
    assert " checked" not in password_page.text
    path = "/account/password"
    passwords = {"current": PASSWORD, "password": OTHER_PASSWORD}
    read_location(logged_in_visitor.fill_in(path, **passwords))
    assert stack.query(count_passkeys, user_id_of(stack, email)) == [(1,)]
    passwords = {"current": OTHER_PASSWORD, "password": PASSWORD}
    read_location(
        logged_in_visitor.fill_in(path, **passwords, **{f"end_passkey.{passkey_id}": "on"})
    )
    assert stack.query(count_passkeys, user_id_of(stack, email)) == [(0,)]


def test_undone_address_change_removes_second_factors_added_after_the_change(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str, device: Device
) -> None:
    """An intruder's second factors must not keep the person from setting a new password."""
    add_passkey(logged_in_visitor, device, name="Before")
    intruder_email = f"intruder.{email}"
    logged_in_visitor.fill_in("/account/email", email=intruder_email, current=PASSWORD)
    read_location(
        logged_in_visitor.fill_in(
            logged_in_visitor.mailed_path(intruder_email, "Confirm your new address")
        )
    )
    add_app(logged_in_visitor)
    add_passkey(logged_in_visitor, Device(stack.api_url), name="After")
    undo_path = visitor.mailed_path(email, "The address of your account was changed")
    password_path = read_location(visitor.fill_in(undo_path)).removeprefix(stack.api_url)
    user_id = user_id_of(stack, email)
    assert stack.query("SELECT 1 FROM totp_secrets WHERE user_id = %s", user_id) == []
    assert stack.query("SELECT name FROM passkeys WHERE user_id = %s", user_id) == [("Before",)]
    password_page = visitor.get(password_path)
    form = {**read_hidden_fields(password_page), "password": OTHER_PASSWORD}
    form["passkey"] = json.dumps(device.sign(options_of(password_page)))
    read_location(visitor.client.post(password_path, data=form))
    assert visitor.is_logged_in()


def test_operator_removes_all_second_factors_and_the_person_is_notified_by_mail(
    stack: Stack, logged_in_visitor: Visitor, visitor: Visitor, email: str, device: Device
) -> None:
    app = add_app(logged_in_visitor)
    add_passkey(logged_in_visitor, device)
    code_page = begin_login(visitor, email)
    run_json_command(stack, "users", "reset-factors", email)
    assert "The operator of this service removed" in visitor.mailed(email, CHANGE_SUBJECT, number=3)
    # After the operator has removed the second factors, a login in progress fails. The person can
    # log in again with only the password.
    reply = send_code(visitor, code_page, app.recovery_codes[0])
    assert "/login" in read_location(reply)
    assert not visitor.is_logged_in()
    assert visitor.log_in(email).status_code == 303
    assert visitor.is_logged_in()
