"""Restricts a child process before it receives untrusted data.

A hostile image can run code by exploiting a vulnerability in a codec. Hostile code in a confined
process can only compute, read requests and write answers. A seccomp filter refuses all system calls
that aren't needed for decoding, even if the process runs as root. A process can't remove its
seccomp filter. If the kernel doesn't support seccomp, only resource limits restrict the child
process.
"""

import errno
import mmap
import resource
from contextlib import suppress
from threading import Thread

from seccompy import Action, ArgCmp, CmpOp, Filter, arch, supported

from core.process.linux import hide_memory, refuse_new_privileges

# The kernel kills a child process that uses more CPU time than ``MAX_CPU_SECONDS``. A normal child
# process uses at most 90 seconds: it accepts no message after 60 seconds, and each message takes at
# most 30 seconds. The CPU limit stops hostile code that keeps running between two messages.
MAX_CPU_SECONDS = 120

# The system calls that a confined child process may make.
_MESSAGE_CALLS = ("read", "pread64", "write", "close", "pselect6")
_MEMORY_CALLS = ("munmap", "mremap", "madvise", "brk")
_RUNTIME_CALLS = (
    "futex",
    "sched_yield",
    "getrandom",
    "clock_gettime",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "restart_syscall",
    "exit",
    "exit_group",
)
_PILLOW_CALLS = ("getcwd",)


def confine_process(memory_bytes: int) -> None:
    """Drop privileges, so that the process can't open files or import modules."""
    with suppress(OSError):
        # Call ``supported`` before the resource limits are set, because it starts a process. The
        # resource limits forbid the child process to start processes.
        supported()
    limit_resources(memory_bytes)
    with suppress(OSError):
        # If the kernel rejects seccomp filters, the worker has already logged a warning at startup.
        create_decoding_filter().load()


def limit_resources(memory_bytes: int, *, open_files: int = 0, file_bytes: int = 0) -> None:
    """Hide the memory of this process from other processes, and limit its resources.

    The resource limits apply to memory, CPU time, open files, file sizes and child processes.
    """
    hide_memory()
    refuse_new_privileges()
    for kind, maximum in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, MAX_CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(kind, (maximum, maximum))


def filter_error() -> OSError | None:
    """Return the error that loading a seccomp filter causes, or ``None`` if it works."""
    errors: list[OSError] = []

    def load() -> None:
        try:
            create_decoding_filter()
            Filter(default=Action.ALLOW).load()
        except OSError as error:
            errors.append(error)

    # Load the seccomp filter in a temporary thread, because a thread can't remove its filter again.
    trial = Thread(target=load)
    trial.start()
    trial.join()
    return errors[0] if errors else None


def create_decoding_filter() -> Filter:
    """Raise ``OSError`` if the processor architecture is unknown."""
    permitted = Filter(default=Action.ERRNO | errno.EPERM)
    for name in (*_MESSAGE_CALLS, *_MEMORY_CALLS, *_RUNTIME_CALLS, *_PILLOW_CALLS):
        permitted.allow(name)
    if arch() == "x86_64":
        # Allow ``select`` too, because some old C libraries call ``select`` instead of
        # ``pselect6``.
        permitted.allow("select")
    # Permit only anonymous, non-executable memory, so that an exploit can't add machine code.
    not_executable = ArgCmp(2, CmpOp.MASKED_EQ, 0, mask=mmap.PROT_EXEC)
    anonymous = ArgCmp(3, CmpOp.MASKED_EQ, mmap.MAP_ANONYMOUS, mask=mmap.MAP_ANONYMOUS)
    permitted.allow("mmap", args=[not_executable, anonymous])
    permitted.allow("mprotect", args=[not_executable])
    return permitted
