"""Defines one bulkhead for each kind of work in the API process."""

from api.limits.bulkhead import Bulkhead
from core.errors import access

# The bulkhead for checking credentials, which most requests need.
AUTHENTICATION = Bulkhead("authentication", 4, does_work=False)
# The bulkhead for hashing passwords. A password hash needs 64 MiB and a CPU core, so only a few are
# computed at the same time.
PASSWORDS = Bulkhead("passwords", 4, wait_seconds=30.0, max_waiting=56, error=access.LOGIN_BUSY)
# The bulkhead for charges, balances, orders and notifications from payment providers.
MONEY = Bulkhead("money", 10, wait_seconds=5.0)
# The bulkhead for requests that change mailing lists, because these requests can wait for the lock
# of a list.
LISTS = Bulkhead("lists", 8)
# The bulkhead for unsubscribing and turning off mail, so that many sign-ups can't delay them.
LEAVING = Bulkhead("leaving", 3, wait_seconds=10.0)
# The bulkhead for the object storage.
STORAGE = Bulkhead("storage", 6, wait_seconds=5.0)
# The bulkhead for parsing large JSON bodies. A second thread would save no time, because the parser
# holds Python's interpreter lock, but would double the memory.
BODIES = Bulkhead("bodies", 1, wait_seconds=10.0, does_work=False)
# The bulkhead for database queries that have no bulkhead of their own.
RECORDS = Bulkhead("records", 8)
# The bulkhead for requests in which mail providers report bounces and complaints, so that many
# reports can't delay other requests.
REPORTS = Bulkhead("reports", 4, wait_seconds=5.0)
# The bulkhead for the Redis operations of requests that wait for a worker. ``REQUESTS`` has a long
# queue, because requests arrive in bursts. A request waits for a thread only briefly, but may wait
# much longer for a worker.
REQUESTS = Bulkhead("requests", 6, wait_seconds=5.0, max_waiting=5_000)
# The bulkhead for DNS lookups of hosts that callers choose. Many threads are reserved for DNS
# lookups, because a hostile DNS server may respond slowly.
HOST_LOOKUPS = Bulkhead("names", 32, wait_seconds=0.5)
# The bulkhead for the database queries of event streams.
STREAMS = Bulkhead("streams", 2)
# The bulkhead for background work, such as queries for finished jobs.
BACKGROUND = Bulkhead("background", 2)
# The bulkhead for health checks, with one thread per dependency.
READINESS = Bulkhead("readiness", 4)
# The bulkhead for reading metrics, with one thread for the database and one for Redis.
METRICS = Bulkhead("metrics", 2)

# The number of threads that may have a database transaction at the same time. The connection pool
# must have a connection for each thread with a database transaction. The number 1 stands for the
# one thread of ``METRICS`` that reads the database.
TRANSACTION_THREADS = 1 + sum(
    bulkhead.threads for bulkhead in (MONEY, LISTS, LEAVING, STORAGE, RECORDS, STREAMS)
)
# The number of threads for work that consists of one SQL statement. The connection pool has
# ``SINGLE_STATEMENTS`` additional connections, so that no route handler waits for a connection.
SINGLE_STATEMENTS = AUTHENTICATION.threads + MONEY.threads + REPORTS.threads
