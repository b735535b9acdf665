"""System calls of Linux for which Python has no function."""

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
# The kind of clock in the id of a process's CPU clock (``man 3 clock_getcpuclockid``).
_CPUCLOCK_SCHED = 2
# The options that ``keep_freed_memory`` and ``return_freed_blocks`` set, and their values. The
# manual page ``man 3 mallopt`` describes the options, and allows at most 32 MiB for the second one.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MAX_KEPT_BYTES = 256 * 1024 * 1024
_MAX_KEPT_BLOCK_BYTES = 32 * 1024 * 1024
_MIN_RETURNED_BYTES = 256 * 1024
# A process with nice value 5 gets a third of the processor time of a process with nice value 0.
_LOW_PRIORITY = 5

_libc = ctypes.CDLL(None, use_errno=True)
# On all systems except Linux, the functions of ``core.process.linux`` do nothing.
_IS_LINUX = sys.platform == "linux"


def hide_memory() -> None:
    """Hide this process's memory, environment and files from other processes of the same user.

    The kernel doesn't write a core dump when a hidden process crashes. Root can still read the
    memory. The memory of a forked child process stays hidden until the child process calls
    ``exec``.
    """
    _control(_PR_SET_DUMPABLE, 0)


def refuse_new_privileges() -> None:
    """Prevent programs that this process executes from gaining privileges through set-user-ID."""
    _control(_PR_SET_NO_NEW_PRIVS, 1)


def exit_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when the thread that started the process ends. The
    process exits immediately if its parent has already exited.
    """
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def measure_cpu_seconds(pid: int) -> float:
    """Measure a process that may have ended, but not been waited for. Return 0 except on Linux."""
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED) if _IS_LINUX else 0.0


def trim_memory() -> None:
    if _IS_LINUX:
        _libc.malloc_trim(0)


def keep_freed_memory() -> None:
    """Let the C library reuse memory that this process frees, until ``trim_memory`` is called."""
    if _IS_LINUX:
        _libc.mallopt(_M_TRIM_THRESHOLD, _MAX_KEPT_BYTES)
        _libc.mallopt(_M_MMAP_THRESHOLD, _MAX_KEPT_BLOCK_BYTES)


def return_freed_blocks() -> None:
    """Let the C library return freed blocks of at least 256 KiB to the operating system at once.

    By default, the C library soon keeps larger blocks. Small objects then divide the kept memory,
    and the next large block takes new memory. The setting also applies to forked child processes.
    """
    if _IS_LINUX:
        _libc.mallopt(_M_MMAP_THRESHOLD, _MIN_RETURNED_BYTES)


def lower_priority() -> None:
    """Let other processes run before this process and its future children.

    The priority of the process's session stays unchanged. With autogroups (``man 7 sched``), a
    session with a lower priority would get nearly no processor time while other programs are busy
    (decision 17).
    """
    os.nice(_LOW_PRIORITY)


def _control(option: int, value: int) -> None:
    if _IS_LINUX and _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
