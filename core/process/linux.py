"""System calls of Linux that Python has no function for."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)
# The rest of the product may run elsewhere, though nothing promises it.
_LINUX = sys.platform == "linux"


def hide_memory() -> None:
    """Let no process of the same user read this one's memory, environment or files; dump no core.

    Root still may. Forked processes are hidden too, executed programs are not.
    """
    _control(_PR_SET_DUMPABLE, 0)


def refuse_new_privileges() -> None:
    """Let no program that this process executes gain rights, by set-user-ID for instance."""
    _control(_PR_SET_NO_NEW_PRIVS, 1)


def end_with_parent(parent: int) -> None:
    """Have this process killed when the thread that started it ends; exit if it has ended."""
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def give_memory_back() -> None:
    """Give the memory that the allocator keeps for later back to the system."""
    if _LINUX:
        _libc.malloc_trim(0)


def _control(option: int, value: int) -> None:
    if _LINUX and _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
