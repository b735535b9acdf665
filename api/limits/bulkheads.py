"""The bulkheads of this process, by the kind of work that they run."""

from api.limits.bulkhead import Bulkhead
from core.errors import access

# Checks of credentials, which most requests need.
AUTHENTICATION = Bulkhead("authentication", 4)
# Hashing of passwords. Each hash needs 64 MiB and a core, so only a few run at the same time.
PASSWORDS = Bulkhead("passwords", 4, wait_seconds=30.0, max_waiting=56, error=access.LOGIN_BUSY)
# Charges, balances, orders and the payment providers' notifications.
MONEY = Bulkhead("money", 10)
# Changes of lists, which wait for a lock on their list.
LISTS = Bulkhead("lists", 8)
# Unsubscribing and turning mail off, which a rush of new subscribers must not delay.
LEAVING = Bulkhead("leaving", 3, wait_seconds=10.0)
# Reads and writes of the object storage.
STORAGE = Bulkhead("storage", 6, wait_seconds=5.0)
# Reads and writes of the database that have no bulkhead of their own.
RECORDS = Bulkhead("records", 8)
# Redis operations of requests that wait for a worker. Requests for workers arrive in bursts, and
# wait much longer for the worker than for a thread.
REQUESTS = Bulkhead("requests", 6, wait_seconds=5.0, max_waiting=5_000)
# DNS lookups of host names from callers. A hostile caller's DNS server may occupy one thread by
# answering slowly, so there are many threads.
HOST_LOOKUPS = Bulkhead("names", 32, wait_seconds=0.5)
# Database queries of open event streams.
STREAMS = Bulkhead("streams", 2)
# Background work of the process, such as queries for finished jobs.
BACKGROUND = Bulkhead("background", 2)
# Health checks, with one thread per dependency.
READINESS = Bulkhead("readiness", 4)
# Metrics, with one thread for the database and one for Redis.
METRICS = Bulkhead("metrics", 2)

# The number of threads that may hold a transaction, and therefore a connection of the pool. The
# additional thread is the thread of METRICS that reads the database.
TRANSACTION_THREADS = 1 + sum(
    bulkhead.threads for bulkhead in (MONEY, LISTS, LEAVING, STORAGE, RECORDS, STREAMS)
)
# The number of threads that may run a single statement. The pool has a connection for each of these
# threads, so that no handler waits for a connection while it occupies a thread.
SINGLE_STATEMENTS = AUTHENTICATION.threads + MONEY.threads
