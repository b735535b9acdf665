"""Defines one bulkhead for each kind of work in the API process."""

from api.limits.bulkhead import Bulkhead
from core.errors import access

# The bulkhead for checks of credentials, which most requests need.
AUTHENTICATION = Bulkhead("authentication", 4)
# The bulkhead for hashing passwords. Computing a password hash needs 64 MiB and a CPU core, so only
# a few hashes are computed at the same time.
PASSWORDS = Bulkhead("passwords", 4, wait_seconds=30.0, max_waiting=56, error=access.LOGIN_BUSY)
# The bulkhead for charges, balances, orders and notifications from payment providers.
MONEY = Bulkhead("money", 10)
# The bulkhead for changes to mailing lists, which may wait for a lock on the mailing list.
LISTS = Bulkhead("lists", 8)
# The bulkhead for unsubscribing and turning off mails, which many simultaneous sign-ups must not
# delay.
LEAVING = Bulkhead("leaving", 3, wait_seconds=10.0)
# The bulkhead for reading from and writing to the object storage.
STORAGE = Bulkhead("storage", 6, wait_seconds=5.0)
# The bulkhead for all database queries without a more specific bulkhead.
RECORDS = Bulkhead("records", 8)
# The bulkhead for Redis operations in requests that wait for the result of a worker. ``REQUESTS``
# has a long queue, because requests arrive in bursts, and waiting for a thread is short compared
# with waiting for a worker.
REQUESTS = Bulkhead("requests", 6, wait_seconds=5.0, max_waiting=5_000)
# The bulkhead for DNS lookups of host names that callers send. Many threads are reserved for DNS
# lookups, because a hostile DNS server may block a thread by answering slowly.
HOST_LOOKUPS = Bulkhead("names", 32, wait_seconds=0.5)
# The bulkhead for the database queries that open event streams run.
STREAMS = Bulkhead("streams", 2)
# The bulkhead for background work of the process, such as queries for finished jobs.
BACKGROUND = Bulkhead("background", 2)
# The bulkhead for health checks, with one thread per dependency.
READINESS = Bulkhead("readiness", 4)
# The bulkhead for reading metrics, with one thread for the database and one for Redis.
METRICS = Bulkhead("metrics", 2)

# The number of threads that may have a database transaction at the same time. Each database
# transaction needs a connection from the connection pool. The sum includes one of the two threads
# of ``METRICS``, because only one of them reads the database.
TRANSACTION_THREADS = 1 + sum(
    bulkhead.threads for bulkhead in (MONEY, LISTS, LEAVING, STORAGE, RECORDS, STREAMS)
)
# The number of threads that may run a single SQL statement at the same time. The connection pool
# has a connection for each thread that runs single SQL statements, so that no route handler waits
# for a connection.
SINGLE_STATEMENTS = AUTHENTICATION.threads + MONEY.threads
