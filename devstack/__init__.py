"""Runs the development stack of `make run` with embedded services, a sandbox and a supervisor."""

# The only address on which programs of the development stack listen.
LOOPBACK = "127.0.0.1"
# The host names in the URLs of the development stack.
LOOPBACK_HOSTS = (LOOPBACK, "localhost")
