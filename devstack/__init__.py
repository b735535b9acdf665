"""The development stack behind `make run`: embedded services, the sandbox and their supervisor."""

# Everything of the development stack listens here alone.
LOOPBACK = "127.0.0.1"
# The names under which a browser on this machine comes here.
LOOPBACK_HOSTS = (LOOPBACK, "localhost")
