"""Restricts a child process before it receives untrusted data.

A hostile image can run code by exploiting a fault in a codec. Such code can only compute, read
requests and write answers. seccomp, a filter in the kernel, refuses all other system calls, even to
root. A process can't remove this filter. If the kernel has no seccomp, only the limits of memory,
CPU time and files restrict the child process.
"""

import errno
import mmap
import resource
from contextlib import suppress
from threading import Thread

from seccompy import Action, ArgCmp, CmpOp, Filter, arch, supported

from core.process.linux import hide_memory, refuse_new_privileges

# The kernel kills a child process that uses more CPU time than this. A normal child exits after the
# message with which it exceeds 60 s of CPU time, and a message takes at most 30 s. Only hostile
# code keeps computing between two messages.
MAX_CPU_SECONDS = 120

_REQUESTS_AND_ANSWERS = ("read", "pread64", "write", "close", "pselect6")
_MEMORY = ("munmap", "mremap", "madvise", "brk")
# The C library and Python need these while they compute, are stopped and continued, or exit.
_RUNNING = ("futex", "sched_yield", "getrandom", "clock_gettime", "rt_sigaction", "rt_sigprocmask")
_ENDING = ("rt_sigreturn", "sigaltstack", "restart_syscall", "exit", "exit_group")
_OF_PILLOW = ("getcwd",)


def confine(memory_bytes: int) -> None:
    """Give up all but decoding. Open files, and import modules, before this."""
    with suppress(OSError):
        # At its first call the library looks for the C library by a process, which is given up.
        supported()
    limit(memory_bytes)
    with suppress(OSError):
        # If the filter can't be loaded, the worker already logged a warning at its start.
        decoding_filter().load()


def limit(memory_bytes: int, *, open_files: int = 0, file_bytes: int = 0) -> None:
    """Protect this process's memory from other processes, and limit its resources.

    This limits memory, CPU time, open files, file sizes and child processes.
    """
    hide_memory()
    refuse_new_privileges()
    for kind, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, MAX_CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(kind, (most, most))


def filter_error() -> OSError | None:
    """Return why this kernel takes no filter; None if it does."""
    errors: list[OSError] = []

    def load() -> None:
        try:
            decoding_filter()
            Filter(default=Action.ALLOW).load()
        except OSError as error:
            errors.append(error)

    # A filter is a thread's own and ends with it.
    trial = Thread(target=load)
    trial.start()
    trial.join()
    return errors[0] if errors else None


def decoding_filter() -> Filter:
    """Return the calls that decoding may make; an OSError for an unknown processor."""
    permitted = Filter(default=Action.ERRNO | errno.EPERM)
    for name in (*_REQUESTS_AND_ANSWERS, *_MEMORY, *_RUNNING, *_ENDING, *_OF_PILLOW):
        permitted.allow(name)
    if arch() == "x86_64":
        permitted.allow("select")  # older C libraries wait with it
    # Memory of a process's own in which nothing can be executed.
    not_executable = ArgCmp(2, CmpOp.MASKED_EQ, 0, mask=mmap.PROT_EXEC)
    anonymous = ArgCmp(3, CmpOp.MASKED_EQ, mmap.MAP_ANONYMOUS, mask=mmap.MAP_ANONYMOUS)
    permitted.allow("mmap", args=[not_executable, anonymous])
    permitted.allow("mprotect", args=[not_executable])
    return permitted
