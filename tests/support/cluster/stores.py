"""The stores of a cluster: each of the embedded servers on a host of its own."""

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
    """The servers on the hosts of their names, and the settings that lead there.

    There is no Valkey among them: one that Sentinels watch takes its place.

    Args:
        database: the address at which the host of Postgres is reached.
    """
    placed = [
        on_host(program, hosts[program.name]) for program in programs if program.name in hosts
    ]
    address_of = {"DATABASE_URL": database, "S3_ENDPOINT": hosts["s3"].address}
    settings = {}
    for name, value in environment.items():
        address = next((address_of[end] for end in address_of if name.endswith(end)), LOOPBACK)
        settings[name] = value.replace(LOOPBACK, address)
    return placed, settings


def on_host(program: Program, host: Host) -> Program:
    """It listens on the host's own address too, and is asked there whether it is ready."""
    if program.run_as is not None:
        pytest.skip("needs user namespaces: another user may enter no network namespace")
    argv = [_open(word) for word in program.argv]
    # A copy of a server that is on another host already.
    if argv[0] == host.prefix[0]:
        del argv[: len(host.prefix)]

    def prepare() -> None:
        program.prepare()
        if program.name == "postgres":
            _admit(Path(program.argv[program.argv.index("-D") + 1]), host)

    return replace(
        program,
        argv=(*host.prefix, *argv),
        is_ready=lambda: host.inside(program.is_ready),
        prepare=prepare,
    )


def _open(word: str) -> str:
    listening = {
        f"listen_addresses={LOOPBACK}": "listen_addresses=*",
        f"-ip.bind={LOOPBACK}": "-ip.bind=0.0.0.0",
    }
    return listening.get(word, word)


def _admit(data: Path, host: Host) -> None:
    """Let the network's hosts log in to Postgres; a copy for a replica too."""
    network = f"{host.address.rpartition('.')[0]}.0/24"
    file = data / "pg_hba.conf"
    if network not in file.read_text():
        with file.open("a") as rules:
            for database in ("all", "replication"):
                rules.write(f"host {database} all {network} scram-sha-256\n")
