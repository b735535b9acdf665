"""Turns off disk flushes in the servers that the tests share."""

from contextlib import closing

import psycopg2

from devstack.harness.stack import Stack


def disable_disk_flushes(stack: Stack) -> None:
    """Stop Postgres and Valkey from flushing each write to the disk, because flushes are slow.

    If a test kills a server, no acknowledged write is lost, because the operating system still
    writes the data to the disk. Only a crash of the whole machine could lose writes. After a
    restart, Valkey flushes each write to the disk again.
    """
    with closing(psycopg2.connect(stack.owner_url)) as connection:
        # Postgres accepts ALTER SYSTEM only outside a transaction.
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("ALTER SYSTEM SET fsync = off")
            cursor.execute("SELECT pg_reload_conf()")
    stack.resources.redis.config_set("appendfsync", "no")
