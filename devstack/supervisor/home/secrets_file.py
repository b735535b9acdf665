"""The stack's generated passwords and keys, made once and kept in the home."""

import base64
import dataclasses
import secrets
from dataclasses import dataclass, field

from devstack.supervisor.errors import StackError
from devstack.supervisor.home.home_folder import Home
from devstack.supervisor.home.private_files import read_json_object, write_private_json


def _password() -> str:
    return secrets.token_urlsafe(24)


def _access_key() -> str:
    return secrets.token_hex(10)


def _key_ring() -> str:
    """One key in the form `<id>:<base64url of 32 random bytes>`."""
    key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    return f"k{secrets.token_hex(3)}:{key}"


@dataclass(frozen=True)
class Secrets:
    """Every password and key of one stack. Losing the encryption keys loses encrypted images."""

    # Of the owner of the tables.
    postgres_password: str = field(default_factory=_password)
    postgres_app_password: str = field(default_factory=_password)
    valkey_admin_password: str = field(default_factory=_password)
    valkey_password: str = field(default_factory=_password)
    s3_admin_access_key: str = field(default_factory=_access_key)
    s3_admin_secret_key: str = field(default_factory=_password)
    s3_access_key: str = field(default_factory=_access_key)
    s3_secret_key: str = field(default_factory=_password)
    s3_internal_key: str = field(default_factory=_password)
    secret_keys: str = field(default_factory=_key_ring)
    encryption_keys: str = field(default_factory=_key_ring)
    metrics_token: str = field(default_factory=_password)
    flower_user: str = "pressroom"
    flower_password: str = field(default_factory=_password)
    demo_password: str = field(default_factory=_password)


def load_or_create(home: Home) -> Secrets:
    """The home's secrets. A file that lacks some gains them and loses nothing."""
    kept = read_json_object(home.secrets_file)
    if kept is None and home.secrets_file.exists():
        raise StackError(
            f"{home.secrets_file} is damaged. Restore it from a copy, "
            "or start afresh with `pressroom reset`, which deletes the stack's data."
        )
    names = {each.name for each in dataclasses.fields(Secrets)}
    chosen = Secrets(**{k: str(v) for k, v in (kept or {}).items() if k in names})
    complete = {**(kept or {}), **dataclasses.asdict(chosen)}
    if complete != kept:
        write_private_json(home.secrets_file, complete)
    return chosen
