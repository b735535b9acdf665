"""Remembers the addresses in a file to detect several rows with the same address."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from core.errors import imports as errors

# The maximum number of addresses in memory. This many addresses take about ten megabytes. An API
# request never contains more than ``MAX_ADDRESSES_IN_MEMORY`` members.
MAX_ADDRESSES_IN_MEMORY = 100_000
# The maximum size of the SQLite database, which is enough for about twenty million addresses.
MAX_SEEN_BYTES = 1024**3
MAX_ADDRESSES_PER_QUERY = 2_000


class SeenAddresses:
    """The addresses in a file.

    Approximately the first ``MAX_ADDRESSES_IN_MEMORY`` addresses of the file are kept in memory.
    Addresses that don't fit into memory are stored in a temporary SQLite database in the folder
    ``SQLITE_TMPDIR`` or ``TMPDIR``.

    Attributes:
        has_stricter_rows: whether any row has a more restrictive status than a preceding row with
            the same address.
    """

    def __init__(self, max_bytes: int = MAX_SEEN_BYTES) -> None:
        self.has_stricter_rows = False
        self._in_memory: dict[str, int] = {}
        # The number of batches of addresses that have been added to the database.
        self._batches = 0
        # SQLite creates a temporary database if the file name is empty.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -8000"):
            self._database.execute(f"PRAGMA {setting}")
        [(page_bytes,)] = self._database.execute("PRAGMA page_size")
        self._database.execute(f"PRAGMA max_page_count = {max_bytes // page_bytes}")
        self._database.execute(
            "CREATE TABLE seen (address TEXT PRIMARY KEY, strictness INTEGER, batch INTEGER)"
            " WITHOUT ROWID"
        )
        self._database.execute("BEGIN")

    def add(self, rows: Mapping[str, int]) -> dict[str, int]:
        """Store addresses.

        ``rows`` maps each address to the rank of the most restrictive status in the address's rows.
        Return the previous rank of each address that was already stored.
        """
        earlier = {
            address: self._in_memory[address] for address in self._in_memory.keys() & rows.keys()
        }
        new = rows.keys() - earlier.keys()
        if len(self._in_memory) < MAX_ADDRESSES_IN_MEMORY:
            self._in_memory.update((address, rows[address]) for address in new)
        elif new:
            earlier |= self._add_to_disk({address: rows[address] for address in new})
        stricter = {
            address: rows[address] for address, before in earlier.items() if rows[address] > before
        }
        if stricter:
            self.has_stricter_rows = True
            self._raise_strictness(stricter)
        return earlier

    def find(self, addresses: Collection[str]) -> dict[str, int]:
        in_memory = self._in_memory.keys() & set(addresses)
        strictness = {address: self._in_memory[address] for address in in_memory}
        addresses_on_disk = [address for address in addresses if address not in strictness]
        return strictness | self._find_on_disk(addresses_on_disk, self._batches)

    def close(self) -> None:
        self._database.close()

    def _add_to_disk(self, rows: Mapping[str, int]) -> dict[str, int]:
        earlier_batches = self._batches
        self._batches += 1
        # Sort the addresses, so that SQLite writes to as few pages of the database as possible.
        values = [(address, rank, self._batches) for address, rank in sorted(rows.items())]
        insert = "INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        try:
            inserted_count = self._database.executemany(insert, values).rowcount
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            raise errors.IMPORT_TOO_MANY_ADDRESSES() from error
        if inserted_count == len(values):
            return {}
        return self._find_on_disk([*rows], earlier_batches)

    def _find_on_disk(self, addresses: Sequence[str], last_batch: int) -> dict[str, int]:
        strictness: dict[str, int] = {}
        for start in range(0, len(addresses), MAX_ADDRESSES_PER_QUERY):
            batch = addresses[start : start + MAX_ADDRESSES_PER_QUERY]
            places = ",".join("?" * len(batch))
            query = (
                f"SELECT address, strictness FROM seen WHERE batch <= {last_batch}"  # noqa: S608 - only placeholders
                f" AND address IN ({places})"
            )
            strictness.update(self._database.execute(query, batch))
        return strictness

    def _raise_strictness(self, stricter: Mapping[str, int]) -> None:
        in_memory = self._in_memory.keys() & stricter.keys()
        self._in_memory.update((address, stricter[address]) for address in in_memory)
        on_disk = [(rank, each) for each, rank in stricter.items() if each not in in_memory]
        self._database.executemany("UPDATE seen SET strictness = ? WHERE address = ?", on_disk)
