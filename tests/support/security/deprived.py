"""Runs a `pressroom` command without Linux capabilities and without system call filters.

``python -m tests.support.security.deprived …`` runs ``pressroom …`` as if an ordinary user had
started the command on a kernel without system call filters.
"""

import ctypes
import errno
import os
import sys

import seccompy

_CAPABILITY_VERSION = 0x20080522


def drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    no_capabilities = (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, no_capabilities) == 0


if __name__ == "__main__":
    drop_capabilities()
    kernel = seccompy.Filter()
    kernel.errno("seccomp", errno.EPERM)
    # Loading a filter also keeps the next program from regaining capabilities, even as root.
    kernel.load()
    os.execv(sys.executable, [sys.executable, "-m", "cli.main", *sys.argv[1:]])
