"""Defines the programs and settings of the embedded services Postgres, Valkey and S3."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from types import MappingProxyType

from devstack.supervisor.child import Program
from devstack.supervisor.embedded.postgres import Postgres
from devstack.supervisor.embedded.s3 import S3, S3Identity, pick_ports
from devstack.supervisor.embedded.valkey import Valkey
from devstack.supervisor.home_folder import MAX_STOP_SECONDS, Home, Lock, Secrets, StackError
from devstack.supervisor.ports import PortPicker

BUCKET = "pressroom"
SERVICE_STAGE = ("s3", "valkey", "postgres")


def plan_services(
    home: Home,
    secrets: Secrets,
    picker: PortPicker,
    lock: Lock,
    user_settings: Mapping[str, str] = MappingProxyType({}),
    *,
    more_buckets: str | None = None,
) -> tuple[list[Program], dict[str, str]]:
    """Plan an embedded server for each service that ``user_settings`` doesn't configure.

    Each embedded server inherits ``lock`` and holds it until the server ends. ``more_buckets`` is a
    pattern for the names of test buckets, such as ``pressroom-*``.
    """
    programs: list[Program] = []
    settings: dict[str, str] = {}
    keep_open = (lock.descriptor,)
    # Start S3 first, because it starts slowest. Start Postgres last, because the supervisor can
    # start nothing else during initdb.
    if "PRESSROOM_S3_ENDPOINT" not in user_settings:
        access_key = user_settings.get("PRESSROOM_S3_ACCESS_KEY", secrets.s3_access_key)
        secret_key = user_settings.get("PRESSROOM_S3_SECRET_KEY", secrets.s3_secret_key)
        s3 = S3(
            home=home,
            ports=pick_ports(picker),
            admin=S3Identity("admin", secrets.s3_admin_access_key, secrets.s3_admin_secret_key),
            application=S3Identity("pressroom", access_key, secret_key),
            internal_key=secrets.s3_internal_key,
            bucket=user_settings.get("PRESSROOM_S3_BUCKET", BUCKET),
            more_buckets=more_buckets,
        )
        programs.append(s3.build_program(keep_open))
        settings |= s3.settings
    if "PRESSROOM_REDIS_URL" not in user_settings:
        valkey = Valkey(home, picker.pick("valkey"), secrets)
        programs.append(valkey.build_program(keep_open))
        settings["PRESSROOM_REDIS_URL"] = valkey.url
    if "PRESSROOM_DATABASE_URL" not in user_settings:
        postgres = Postgres(home, picker.pick("postgres"), secrets)
        programs.append(postgres.build_program(keep_open))
        settings |= postgres.settings
    return programs, settings


def build_common_settings(secrets: Secrets, *, api_url: str) -> dict[str, str]:
    """Return the settings that don't depend on the services' addresses."""
    return {
        "PRESSROOM_PUBLIC_URL": api_url,
        # Stop the API without a drain period, because no proxy is in front of the API and the
        # developer is waiting.
        "PRESSROOM_API_DRAIN": "0",
        "PRESSROOM_SECRET_KEYS": secrets.secret_keys,
        "PRESSROOM_ENCRYPTION_KEYS": secrets.encryption_keys,
        # Allow redirects to loopback addresses, because developers run their own websites there.
        "PRESSROOM_REDIRECT_ORIGINS": "loopback",
        # Allow webhooks to loopback addresses, on which developers run their receivers.
        "PRESSROOM_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8,::1/128",
        # Set high rate limits, because all requests of a load test come from one address. Keep the
        # rate limits enabled, so that responses contain the rate limit headers.
        "PRESSROOM_RATE_LIMIT_DEFAULT": "600000/minute",
        "PRESSROOM_RATE_LIMIT_ANONYMOUS": "600000/minute",
        "PRESSROOM_RATE_LIMIT_LOGIN": "600/minute",
        "PRESSROOM_METRICS_TOKEN": secrets.metrics_token,
        "PRESSROOM_FLOWER_USER": secrets.flower_user,
        "PRESSROOM_FLOWER_PASSWORD": secrets.flower_password,
    }


@contextmanager
def lock_services(home: Home, report: Callable[[str], None] = lambda _: None) -> Iterator[Lock]:
    """Wait until earlier servers have ended, and hold the services' lock during the block."""
    lock = Lock(home.services_lock)
    if not lock.acquire():
        report("Waiting for the servers of an earlier run to stop.")
        if not lock.acquire(wait_seconds=MAX_STOP_SECONDS):
            raise StackError(
                f"Servers of an earlier run still use {home.path}. Run `fuser "
                f"{home.services_lock}` to find their processes, and stop them."
            )
    with closing(lock):
        yield lock
