"""`pressroom …` as a script runs it, without a process for each command.

A process takes 0.7 seconds of a processor to start, and most commands a fiftieth of that. So a
command runs in the tests' own process, from its words to its exit code.
"""

import contextvars
import gc
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import structlog

from cli import main
from core.settings import load_settings
from devstack.harness.stack import Stack

# These run until they are asked to end, or change how their process takes signals.
_PROCESSES = {"serve", "worker", "beat", "flower", "migrate", "bucket", "up", "listen"}


def pressroom(
    stack: Stack, *words: str, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `pressroom words…` with the stack's settings; `stdin` is what a pipe brings."""
    return ended({**stack.environment, **environment}, *words, stdin=stdin)


def ended(
    environment: Mapping[str, str], *words: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `pressroom words…` with these variables alone."""
    if _PROCESSES.intersection(words[:1]):
        return ended_process(environment, *words, stdin=stdin)
    streams = [TextIOWrapper(BytesIO(given), "utf-8") for given in (stdin.encode(), b"", b"")]
    with ExitStack() as changed:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            changed.enter_context(mock.patch.object(sys, name, stream))
        changed.enter_context(mock.patch.object(sys, "argv", ["pressroom", *words]))
        # A command that finds no file here calls itself `python -m pytest.pressroom`.
        changed.enter_context(mock.patch.object(sys.modules["__main__"], "__package__", None))
        changed.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        changed.enter_context(_process_kept())
        # A command says in its context who acts.
        code = contextvars.copy_context().run(_exit_code)
    told = []
    for stream in streams[1:]:
        stream.seek(0)
        told.append(stream.read())
    return subprocess.CompletedProcess(list(words), code, *told)


def ended_process(
    environment: Mapping[str, str], *words: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `pressroom words…` as a process of its own."""
    return subprocess.run(
        [Path(sys.executable).with_name("pressroom"), *words],
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def printed(stack: Stack, *words: str, stdin: str = "", **environment: str) -> Any:
    """What a command prints with `--json`."""
    done = pressroom(stack, *words, "--json", stdin=stdin, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fails_with(stack: Stack, code: str, *words: str) -> None:
    """The command ends with 1, says why in one line, and prints nothing for scripts to read."""
    done = pressroom(stack, *words, "--json")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.endswith(f"({code})"), line


def _exit_code() -> int:
    load_settings.cache_clear()
    try:
        with pytest.raises(SystemExit) as end:
            main.main()
    finally:
        load_settings.cache_clear()
    assert isinstance(end.value.code, int)
    return end.value.code


@contextmanager
def _process_kept() -> Iterator[None]:
    """Leave this process as it was, except for what the command imports."""
    configure, configured = structlog.configure, structlog.get_config()
    root = logging.getLogger()
    handlers, level, disabled = root.handlers[:], root.level, root.manager.disable
    # A configuration closes the handlers that it finds.
    root.handlers.clear()
    with (
        # No logger keeps what the command configures.
        mock.patch.object(
            structlog,
            "configure",
            lambda **given: configure(**{**given, "cache_logger_on_first_use": False}),
        ),
        # A command logs nothing below an error, whatever the levels of libraries are.
        mock.patch("core.log_output._configure_libraries"),
        mock.patch.object(sys, "excepthook", sys.excepthook),
        # It would keep the garbage of all tests so far.
        mock.patch.multiple(gc, freeze=mock.DEFAULT, set_threshold=mock.DEFAULT),
        # `pressroom doctor` waits for no thread.
        mock.patch.object(os, "_exit", sys.exit),
    ):
        try:
            yield
        finally:
            configure(**configured)
            root.handlers[:] = handlers
            root.setLevel(level)
            logging.disable(disabled)
