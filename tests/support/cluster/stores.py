"""Runs each server that a test cluster needs, such as Postgres, on its own host."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from devstack import LOOPBACK
from devstack.harness.embedded_services import Plan
from devstack.supervisor.child import Program
from tests.support.cluster.network import Host


def on_hosts(
    programs: list[Program], environment: dict[str, str], hosts: Mapping[str, Host], database: str
) -> Plan:
    """Return programs that run on the cluster's hosts, and settings with these hosts' addresses.

    Each program runs on the host that has the program's name. Valkey is left out, because the
    cluster has a Redis with Sentinels instead.

    ``database``: the address of the Postgres host.
    """
    programs_on_hosts = [
        on_host(program, hosts[program.name]) for program in programs if program.name in hosts
    ]
    # Maps the end of a setting's name to the host address that the setting must contain.
    addresses = {"DATABASE_URL": database, "S3_ENDPOINT": hosts["s3"].address}
    settings = {}
    for name, value in environment.items():
        address = next((addresses[end] for end in addresses if name.endswith(end)), LOOPBACK)
        settings[name] = value.replace(LOOPBACK, address)
    return programs_on_hosts, settings


def on_host(program: Program, host: Host) -> Program:
    if program.run_as is not None:
        pytest.skip("needs user namespaces: another user may enter no network namespace")
    argv = [_listen_on_all_addresses(word) for word in program.argv]
    # If ``program`` was already made to run on another host, its command begins with a prefix that
    # selects that other host. Remove the prefix.
    if argv[0] == host.prefix[0]:
        del argv[: len(host.prefix)]

    def prepare() -> None:
        program.prepare()
        if program.name == "postgres":
            _allow_logins(Path(program.argv[program.argv.index("-D") + 1]), host)

    return replace(
        program,
        argv=(*host.prefix, *argv),
        is_ready=lambda: host.inside(program.is_ready),
        prepare=prepare,
    )


def _listen_on_all_addresses(word: str) -> str:
    replacements = {
        f"listen_addresses={LOOPBACK}": "listen_addresses=*",
        f"-ip.bind={LOOPBACK}": "-ip.bind=0.0.0.0",
    }
    return replacements.get(word, word)


def _allow_logins(data: Path, host: Host) -> None:
    """Allow logins and replication connections to Postgres from all hosts of the network."""
    network = f"{host.address.rpartition('.')[0]}.0/24"
    file = data / "pg_hba.conf"
    if network not in file.read_text():
        with file.open("a") as rules:
            for database in ("all", "replication"):
                rules.write(f"host {database} all {network} scram-sha-256\n")
