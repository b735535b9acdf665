"""Runs our command line without Linux capabilities and without system call filters.

Run it with ``python -m tests.support.security.deprived …``. The command then runs as for an
ordinary user on a kernel without filters, even if root started it.
"""

import ctypes
import errno
import os
import sys

import seccompy

_VERSION_OF_CAPABILITIES = 0x20080522


def drop_capabilities() -> None:
    header, none = (ctypes.c_uint32 * 2)(_VERSION_OF_CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0


if __name__ == "__main__":
    drop_capabilities()
    kernel = seccompy.Filter()
    kernel.errno("seccomp", errno.EPERM)
    # With this comes that no program gets the capabilities back, root's neither.
    kernel.load()
    os.execv(sys.executable, [sys.executable, "-m", "cli.main", *sys.argv[1:]])
