"""The development stack behind `make run`: embedded services, the sandbox and their supervisor."""

# All programs of the development stack listen only on this address.
LOOPBACK = "127.0.0.1"
# The host names in the URLs of the development stack.
LOOPBACK_HOSTS = (LOOPBACK, "localhost")
