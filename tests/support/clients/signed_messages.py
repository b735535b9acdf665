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
    """Return messages, and whether the receiver must accept each message."""
    good = sign_message()
    text = '{"name": "Zoë"}'.encode()

    def case(
        headers: dict[str, str], body: bytes = BODY, secrets: tuple[str, ...] = (SECRET,)
    ) -> dict[str, object]:
        return {"headers": headers, "body": body.decode(), "secrets": list(secrets)}

    accepted = {
        "valid": case(good),
        "signed with the new and the old secret": case(sign_message(secrets=(OLD_SECRET, SECRET))),
        "received with both secrets": case(
            sign_message(secrets=(OLD_SECRET,)), secrets=(SECRET, OLD_SECRET)
        ),
        "capitalized header names": case({name.title(): value for name, value in good.items()}),
        "not ASCII": case(sign_message(text), text),
        "almost too old": case(sign_message(age=290)),
    }
    another_version = good["webhook-signature"].replace("v1,", "v1a,")
    rejected = {
        "another secret": case(good, secrets=(OLD_SECRET,)),
        "another body": case(good, b'{"test": 1}'),
        "another id": case({**good, "webhook-id": "msg_2"}),
        "too old": case(sign_message(age=310)),
        "from the future": case(sign_message(age=-310)),
        "an invalid time": case(sign_message(at="now")),
        "another signature version": case({**good, "webhook-signature": another_version}),
        "an empty signature": case({**good, "webhook-signature": "v1,"}),
        "a signature that isn't base64": case({**good, "webhook-signature": "v1,é%"}),
        "no signature": case({name: good[name] for name in ("webhook-id", "webhook-timestamp")}),
        "the specification's example, too old": case(SPECIFICATION_HEADERS),
    }
    return [
        {"name": name, **each, "ok": cases is accepted}
        for cases in (accepted, rejected)
        for name, each in cases.items()
    ]
