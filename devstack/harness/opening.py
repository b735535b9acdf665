"""Opens isolated stacks that share the running embedded services."""

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path

import psycopg2
from psycopg2 import sql

from core.keyring import Key
from core.settings import MAY_BE_EMPTY, Settings
from devstack import LOOPBACK
from devstack.harness.embedded_services import BUCKET_PREFIX, Services
from devstack.harness.stack import Stack, StackPrograms
from devstack.supervisor.environment import clean_environment
from storage.migrations.run import migrate
from storage.objects import ObjectStore
from storage.resources import open_resources

# A retired secret key that every isolated stack still accepts.
RETIRED_KEY = Key("retired", b"r" * 32)
# A domain on the operator's deny list in every isolated stack.
DENIED_BY_OPERATOR = "denied-by-operator.example"
RATE_LIMIT_SETTINGS = tuple(
    f"PRESSROOM_{name.upper()}" for name in MAY_BE_EMPTY if "_limit_" in name
)
# The quota of the paid plan, which owners in tests have by default. In tests, the paid plan has no
# quota for jobs, because some tests run many jobs at the same time. Owners with the free plan have
# the default quotas.
PAID_QUOTA = "members=10000000"
_PLAIN_PROGRAMS = StackPrograms()

# The open isolated stacks of this process, whose logs help to explain failed tests.
OPEN_STACKS: list[Stack] = []


@contextlib.contextmanager
def open_stack(
    services: Services,
    home: Path,
    name: str,
    number: int,
    port: int,
    *,
    migrated: bool = True,
    like: str = "template1",
    redis_url: str | None = None,
    programs: StackPrograms = _PLAIN_PROGRAMS,
) -> Iterator[Stack]:
    """Open a stack with the database and bucket ``name`` and the Redis database ``number``.

    ``like`` is the template of the stack's database. ``redis_url`` replaces the embedded Valkey
    server.
    """
    environment = _create_namespace(services.environment, name, number, like)
    owner_url = environment.pop("PRESSROOM_MIGRATION_DATABASE_URL")
    environment["PRESSROOM_REDIRECT_ORIGINS"] = "loopback,https://shop.example"
    # Disable all rate limits, because all test clients share one network and all test addresses
    # share one domain. Tests of rate limits set the limits that they need.
    environment |= dict.fromkeys(RATE_LIMIT_SETTINGS, "")
    environment["PRESSROOM_QUOTA_PAID"] = PAID_QUOTA
    environment["PRESSROOM_DENY_LIST"] = DENIED_BY_OPERATOR
    environment["PRESSROOM_PUBLIC_URL"] = f"http://{LOOPBACK}:{port}"
    administrator = redis_url or _administrator_url(services, environment)
    environment["PRESSROOM_REDIS_URL"] = redis_url or environment["PRESSROOM_REDIS_URL"]
    settings = build_settings(environment, PRESSROOM_REDIS_URL=administrator)
    resources = open_resources(settings, concurrency=8, name="tests")
    try:
        if migrated:
            migrate(build_settings(environment, PRESSROOM_MIGRATION_DATABASE_URL=owner_url))
        administrators = {
            "PRESSROOM_S3_ACCESS_KEY": services.secrets.s3_admin_access_key,
            "PRESSROOM_S3_SECRET_KEY": services.secrets.s3_admin_secret_key,
        }
        ObjectStore(build_settings(environment, **administrators), connections=1).create_bucket()
        full_environment = {**clean_environment(), **environment}
        stack = Stack(name, home, full_environment, resources, owner_url, programs, api_port=port)
        OPEN_STACKS.append(stack)
        try:
            yield stack
        finally:
            OPEN_STACKS.remove(stack)
            stack.close()
    finally:
        resources.close()


def build_settings(environment: dict[str, str], **more: str) -> Settings:
    return Settings.model_validate(
        {
            key.removeprefix("PRESSROOM_").lower(): value
            for key, value in {**environment, **more}.items()
            if key.startswith("PRESSROOM_")
        }
    )


def _administrator_url(services: Services, environment: dict[str, str]) -> str:
    server = environment["PRESSROOM_REDIS_URL"].rpartition("@")[2]
    return f"redis://:{services.secrets.valkey_admin_password}@{server}"


def _create_namespace(
    environment: dict[str, str], name: str, number: int, like: str
) -> dict[str, str]:
    """Create the stack's database if it doesn't exist, and return the stack's settings."""
    owner = environment["PRESSROOM_MIGRATION_DATABASE_URL"]
    connection = psycopg2.connect(owner)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
        # A benchmark may reuse a database that an earlier benchmark run filled.
        if cursor.fetchone() is None:
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            cursor.execute(statement.format(sql.Identifier(name), sql.Identifier(like)))
    connection.close()
    retired_secret = base64.urlsafe_b64encode(RETIRED_KEY.secret).decode()
    current_keys = environment["PRESSROOM_SECRET_KEYS"]
    return {
        **environment,
        "PRESSROOM_SECRET_KEYS": f"{current_keys},{RETIRED_KEY.id}:{retired_secret}",
        "PRESSROOM_DATABASE_URL": _with_database(environment["PRESSROOM_DATABASE_URL"], name),
        "PRESSROOM_MIGRATION_DATABASE_URL": _with_database(owner, name),
        "PRESSROOM_REDIS_URL": _with_database(environment["PRESSROOM_REDIS_URL"], str(number)),
        "PRESSROOM_S3_BUCKET": f"{BUCKET_PREFIX}{name}",
    }


def _with_database(url: str, database: str) -> str:
    return f"{url.rpartition('/')[0]}/{database}"
