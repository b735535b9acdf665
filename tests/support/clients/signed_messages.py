"""Signs messages as the Standard Webhooks specification defines, without the product's code."""

import base64
import hashlib
import hmac
import time

# The example message in the official libraries of the Standard Webhooks specification.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY = b'{"test": 2432232314}'
SPECIFICATION_HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def sign_message(
    body: bytes = BODY, *, secrets: tuple[str, ...] = (SECRET,), age: float = 0, at: str = ""
) -> dict[str, str]:
    """Return the headers of a message that was sent `age` seconds ago, or at the time `at`."""
    sent_at = at or str(int(time.time() - age))
    content = b".".join((b"msg_1", sent_at.encode(), body))
    signatures = [
        hmac.new(base64.b64decode(secret.removeprefix("whsec_")), content, hashlib.sha256).digest()
        for secret in secrets
    ]
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": sent_at,
        "webhook-signature": " ".join(
            f"v1,{base64.b64encode(each).decode()}" for each in signatures
        ),
    }


def build_messages() -> list[dict[str, object]]:
    """Return messages, the receiver's secrets, and whether the receiver must accept each message.

    Each item of ``cases`` contains the message's name, headers and body, the receiver's secrets,
    and a boolean that says whether the message is valid.
    """
    good = sign_message()
    cases: list[tuple[str, dict[str, str], bytes, tuple[str, ...], bool]] = [
        ("valid", good, BODY, (SECRET,), True),
        (
            "signed with the new and the old secret",
            sign_message(secrets=(OLD_SECRET, SECRET)),
            BODY,
            (SECRET,),
            True,
        ),
        (
            "received with both secrets",
            sign_message(secrets=(OLD_SECRET,)),
            BODY,
            (SECRET, OLD_SECRET),
            True,
        ),
        (
            "capitalized header names",
            {k.title(): v for k, v in good.items()},
            BODY,
            (SECRET,),
            True,
        ),
        (
            "not ASCII",
            sign_message('{"name": "Zoë"}'.encode()),
            '{"name": "Zoë"}'.encode(),
            (SECRET,),
            True,
        ),
        ("almost too old", sign_message(age=290), BODY, (SECRET,), True),
        ("another secret", good, BODY, (OLD_SECRET,), False),
        ("another body", good, b'{"test": 1}', (SECRET,), False),
        ("another id", {**good, "webhook-id": "msg_2"}, BODY, (SECRET,), False),
        ("too old", sign_message(age=310), BODY, (SECRET,), False),
        ("from the future", sign_message(age=-310), BODY, (SECRET,), False),
        ("an invalid time", sign_message(at="now"), BODY, (SECRET,), False),
        (
            "another signature version",
            {**good, "webhook-signature": good["webhook-signature"].replace("v1,", "v1a,")},
            BODY,
            (SECRET,),
            False,
        ),
        ("an empty signature", {**good, "webhook-signature": "v1,"}, BODY, (SECRET,), False),
        (
            "a signature that isn't base64",
            {**good, "webhook-signature": "v1,é%"},
            BODY,
            (SECRET,),
            False,
        ),
        (
            "no signature",
            {k: v for k, v in good.items() if k != "webhook-signature"},
            BODY,
            (SECRET,),
            False,
        ),
        ("the specification's example, too old", SPECIFICATION_HEADERS, BODY, (SECRET,), False),
    ]
    return [
        {"name": name, "headers": headers, "body": body.decode(), "secrets": list(known), "ok": ok}
        for name, headers, body, known, ok in cases
    ]
