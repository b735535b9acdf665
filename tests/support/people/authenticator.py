"""Simulates a device with a passkey, and an authenticator app that shows codes."""

import base64
import hashlib
import html
import json
import re
import secrets
import struct
from dataclasses import dataclass, field
from typing import Any

import cbor2
import httpx2
import pyotp
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.people.visiting import Visitor, read_hidden_fields, user_id_of

_OPTIONS = re.compile(r'data-options="([^"]*)"')
_SECRET = re.compile(r'name="secret" value="([A-Z2-7]+)"')
_CODES = re.compile(r"<li><code>([a-z0-9-]+)</code>")
_PRESENT, _VERIFIED, _HAS_KEY = 0x01, 0x04, 0x40
FACTORS, APP, PASSKEY = "/account/factors", "/account/factors/app", "/account/factors/passkey"


@dataclass
class Device:
    """Creates one passkey for a site, and signs with it.

    Attributes:
        verifies: whether the device verifies the person.
        counts: whether the device counts its signatures.
        handle: the user id that the site gave to the device.
    """

    origin: str
    verifies: bool = True
    counts: bool = True
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    uses: int = 0
    handle: bytes = b""
    _key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    def make(self, options: dict[str, Any]) -> dict[str, Any]:
        user_id = options["user"]["id"]
        self.handle = base64.urlsafe_b64decode(user_id + "=" * (-len(user_id) % 4))
        point = self._key.public_key().public_numbers()
        public = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
        name = struct.pack(">H", len(self.credential_id)) + self.credential_id
        # A real device could send its AAGUID, which identifies its model, instead of zero bytes.
        key = bytes(16) + name + cbor2.dumps(public)
        data = self._data(options["rp"]["id"], _HAS_KEY) + key
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        client = self._client_data("webauthn.create", options)
        return self._answer({"clientDataJSON": client, "attestationObject": attestation})

    def sign(self, options: dict[str, Any]) -> dict[str, Any]:
        data = self._data(options["rpId"], 0)
        client = self._client_data("webauthn.get", options)
        signed = self._key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(SHA256()))
        parts = {"clientDataJSON": client, "authenticatorData": data, "signature": signed}
        return self._answer({**parts, "userHandle": self.handle})

    def _data(self, site: str, flags: int) -> bytes:
        self.uses += self.counts
        flags |= _PRESENT | (_VERIFIED if self.verifies else 0)
        return hashlib.sha256(site.encode()).digest() + struct.pack(">BI", flags, self.uses)

    def _client_data(self, kind: str, options: dict[str, Any]) -> bytes:
        content = {"type": kind, "challenge": options["challenge"], "origin": self.origin}
        return json.dumps(content).encode()

    def _answer(self, parts: dict[str, bytes]) -> dict[str, Any]:
        name = _text(self.credential_id)
        response = {part: _text(value) for part, value in parts.items()}
        return {"id": name, "rawId": name, "type": "public-key", "response": response}


def options_of(page: httpx2.Response) -> dict[str, Any]:
    [escaped] = _OPTIONS.findall(page.text)
    options: dict[str, Any] = json.loads(html.unescape(escaped))
    return options


def codes_of(page: httpx2.Response) -> list[str]:
    return _CODES.findall(page.text)


@dataclass
class App:
    secret: str
    recovery_codes: list[str]
    # The code that the authenticator app showed when the owner added the app to the account. The
    # authenticator app shows a new code every 30 seconds.
    confirmed_by: str

    def code(self) -> str:
        return pyotp.TOTP(self.secret).now()


def add_app(visitor: Visitor) -> App:
    page = visitor.get(APP)
    [secret] = _SECRET.findall(page.text)
    code = pyotp.TOTP(secret).now()
    reply = visitor.client.post(APP, data={**read_hidden_fields(page), "code": code})
    assert reply.status_code in {200, 303}, reply.text
    return App(secret, codes_of(reply), code)


def add_passkey(visitor: Visitor, device: Device, name: str = "Phone") -> httpx2.Response:
    page = visitor.get(PASSKEY)
    answer = device.make(options_of(page))
    form = {**read_hidden_fields(page), "name": name, "passkey": json.dumps(answer)}
    return visitor.client.post(PASSKEY, data=form)


def begin_login(visitor: Visitor, email: str, **more: str) -> httpx2.Response:
    """Log in with the password, and return the page that asks for the second factor."""
    reply = visitor.log_in(email, **more)
    assert reply.status_code == 403, reply.text
    assert "Confirm it’s you" in reply.text
    return reply


def send_code(visitor: Visitor, page: httpx2.Response, code: str) -> httpx2.Response:
    return visitor.client.post("/login/factor", data={**read_hidden_fields(page, -1), "code": code})


def log_in_by_passkey(visitor: Visitor, device: Device) -> httpx2.Response:
    # With `again=yes`, even a visitor who is logged in sees the login page.
    page = visitor.get("/login?again=yes")
    answer = device.sign(options_of(page))
    form = {**read_hidden_fields(page, 1), "passkey": json.dumps(answer)}
    return visitor.client.post("/login/passkey", data=form)


def make_code_valid_again(visitor: Visitor, email: str) -> None:
    """Allow the account to log in again with the authenticator app's current code.

    Pressroom accepts each code only once, and the app shows a new code only every 30 seconds.
    """
    statement = "UPDATE totp_secrets SET last_step = last_step - 10 WHERE user_id = %s"
    visitor.stack.query(statement, user_id_of(visitor.stack, email))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
