"""A child process of the image converter that runs hostile code instead of converting images.

Each "image" is a JSON array: the name of the hostile code in `CODE`, and the target of the attack.
``python -m tests.support.security.hostile_child PARENT_PID MEMORY_BYTES [CONFINEMENT]`` starts the
process, with the arguments of the real converter. If CONFINEMENT is `limits`, the process runs
without a system call filter. If CONFINEMENT is `open`, the process is not confined at all.
"""

import ctypes
import errno
import json
import mmap
import os
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import seccompy

from services.attachments.images.outcome import ConvertedImage, UnreadableImage
from services.attachments.isolation import child

PARENT = int(sys.argv[1]) if __name__ == "__main__" else 0
_PR_SET_DUMPABLE = 4
_PTRACE_PEEKDATA = 2
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    converted = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    if _libc.syscall(seccompy.syscall_nr(name), *converted) == -1:
        raise OSError(ctypes.get_errno(), name)


def _read_memory() -> None:
    target = ctypes.create_string_buffer(1)
    source = ctypes.create_string_buffer(1)
    pieces = [(ctypes.c_size_t * 2)(ctypes.addressof(each), 1) for each in (target, source)]
    _call("process_vm_readv", os.getpid(), pieces[0], 1, pieces[1], 1, 0)


def _fork() -> None:
    copy = os.fork()
    if copy == 0:
        os._exit(0)
    os.waitpid(copy, 0)


def _connect(family: socket.AddressFamily, address: str | tuple[str, int]) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.connect(address)


CODE: dict[str, Callable[[str], object]] = {
    "read a file": lambda path: Path(path).read_bytes(),
    "write a file": lambda path: Path(path).write_bytes(b"changed"),
    "make a file": lambda path: Path(path).with_suffix(".new").touch(),
    "delete a file": os.unlink,
    "list a folder": lambda path: list(Path(path).parent.iterdir()),
    "make a file in memory": lambda _: os.memfd_create("x"),
    "read the parent's environment": lambda _: Path(f"/proc/{PARENT}/environ").read_bytes(),
    "read the parent's memory": lambda _: os.open(f"/proc/{PARENT}/mem", os.O_RDONLY),
    "read a process's memory": lambda _: _read_memory(),
    "trace a process": lambda _: _call("ptrace", _PTRACE_PEEKDATA, PARENT, 0, 0),
    "signal the parent": lambda _: os.kill(PARENT, 0),
    "signal a thread of the parent": lambda _: _call("tgkill", PARENT, PARENT, 0),
    "hold the parent": lambda _: os.pidfd_open(PARENT),
    "connect over TCP": lambda port: _connect(socket.AF_INET, ("127.0.0.1", int(port))),
    "connect on this machine": lambda path: _connect(socket.AF_UNIX, path),
    "fork": lambda _: _fork(),
    "start a program": lambda path: os.waitpid(os.posix_spawn(path, [path], {}), 0),
    "become a program": lambda path: os.execv(path, [path]),
    "hand over system calls": lambda _: _call(
        "io_uring_setup", 1, ctypes.create_string_buffer(120)
    ),
    "load machine code": lambda _: mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_EXEC),
    "change a limit": lambda _: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    "show its memory": lambda _: _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0),
    "print": lambda text: os.write(2, text.encode()),
    "crash": lambda text: 1 // len(text[:0]),
}


def _run(image: bytes, *, with_renditions: bool) -> ConvertedImage:
    """Run the hostile code that the image names, instead of converting an image."""
    assert not with_renditions
    code, target = json.loads(image)
    try:
        CODE[code](target)
    except OSError as error:
        raise UnreadableImage(errno.errorcode[error.errno or 0], "") from None
    except ValueError:
        # Python raises ValueError if the process may not change a resource limit.
        raise UnreadableImage("EPERM", "") from None
    raise UnreadableImage("reached", "")


def main(confinement: str) -> None:
    with ExitStack() as changes:
        changes.enter_context(patch.object(child, "convert_image", _run))
        if confinement == "limits":
            refused = seccompy.UnsupportedError(errno.ENOSYS, "no filters")
            changes.enter_context(patch.object(seccompy.Filter, "load", side_effect=refused))
        if confinement == "open":
            changes.enter_context(patch.object(child, "confine_process"))
        child.main()


if __name__ == "__main__":
    main(*sys.argv[3:] or ["closed"])
