"""Defines one bulkhead for each kind of work in the API process."""

from api.limits.bulkhead import Bulkhead
from core.errors import access

# The bulkhead for checks of credentials, which most requests need.
AUTHENTICATION = Bulkhead("authentication", 4)
# The bulkhead for hashing passwords. Each password hash needs 64 MiB and a CPU core, so only a few
# hashes are computed at the same time.
PASSWORDS = Bulkhead("passwords", 4, wait_seconds=30.0, max_waiting=56, error=access.LOGIN_BUSY)
# The bulkhead for charges, balances, orders and notifications from payment providers.
MONEY = Bulkhead("money", 10)
# The bulkhead for changes of mailing lists, which wait for a lock on the mailing list.
LISTS = Bulkhead("lists", 8)
# The bulkhead for unsubscribing and turning mail off, which a rush of new subscribers must not
# delay.
LEAVING = Bulkhead("leaving", 3, wait_seconds=10.0)
# The bulkhead for reads and writes of the object storage.
STORAGE = Bulkhead("storage", 6, wait_seconds=5.0)
# The bulkhead for database queries that have no bulkhead of their own.
RECORDS = Bulkhead("records", 8)
# The bulkhead for Redis operations of requests that wait for a worker. Requests for workers arrive
# in bursts, and wait much longer for a worker than for a thread.
REQUESTS = Bulkhead("requests", 6, wait_seconds=5.0, max_waiting=5_000)
# The bulkhead for DNS lookups of host names from callers. The bulkhead for DNS lookups has many
# threads, because a hostile caller's DNS server may occupy a thread by answering slowly.
HOST_LOOKUPS = Bulkhead("names", 32, wait_seconds=0.5)
# The bulkhead for database queries of open event streams.
STREAMS = Bulkhead("streams", 2)
# The bulkhead for background work of the process, such as queries for finished jobs.
BACKGROUND = Bulkhead("background", 2)
# The bulkhead for health checks, with one thread per dependency.
READINESS = Bulkhead("readiness", 4)
# The bulkhead for metrics, with one thread for the database and one thread for Redis.
METRICS = Bulkhead("metrics", 2)

# The number of threads that may have a database transaction at the same time. Each transaction
# needs a connection of the connection pool. The sum includes one thread of ``METRICS``, which reads
# the database.
TRANSACTION_THREADS = 1 + sum(
    bulkhead.threads for bulkhead in (MONEY, LISTS, LEAVING, STORAGE, RECORDS, STREAMS)
)
# The number of threads that may run a single SQL statement at the same time. The connection pool
# has a connection for each thread, so that no handler waits for a connection.
SINGLE_STATEMENTS = AUTHENTICATION.threads + MONEY.threads
