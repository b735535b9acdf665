"""Runs `pressroom` commands in the test's own process, as if a script had started them.

Starting a new process would take 0.7 seconds of CPU time, which is fifty times as much as most
commands need.
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

# Commands that run until a signal ends them, or that change signal handlers.
_PROCESS_COMMANDS = {"serve", "worker", "beat", "flower", "migrate", "bucket", "up", "listen"}


def pressroom(
    stack: Stack, *words: str, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `pressroom words…` with the settings of the stack, and with a text on stdin."""
    return run_command({**stack.environment, **environment}, *words, stdin=stdin)


def run_command(
    environment: Mapping[str, str], *words: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `pressroom words…` with these environment variables only."""
    if _PROCESS_COMMANDS.intersection(words[:1]):
        return run_command_process(environment, *words, stdin=stdin)
    streams = [TextIOWrapper(BytesIO(content), "utf-8") for content in (stdin.encode(), b"", b"")]
    with ExitStack() as patches:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patches.enter_context(mock.patch.object(sys, name, stream))
        patches.enter_context(mock.patch.object(sys, "argv", ["pressroom", *words]))
        # Make help texts call the command `pressroom`, and not `python -m pytest.pressroom`.
        patches.enter_context(mock.patch.object(sys.modules["__main__"], "__package__", None))
        patches.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        patches.enter_context(_restored_process())
        # Commands set context variables, such as the actor. Run the command in a copied context, so
        # that the context variables of the test don't change.
        code = contextvars.copy_context().run(_run_main)
    outputs = []
    for stream in streams[1:]:
        stream.seek(0)
        outputs.append(stream.read())
    return subprocess.CompletedProcess(list(words), code, *outputs)


def run_command_process(
    environment: Mapping[str, str], *words: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("pressroom"), *words],
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def run_json_command(stack: Stack, *words: str, stdin: str = "", **environment: str) -> Any:
    """Run a command with `--json`, and return its parsed output."""
    process = pressroom(stack, *words, "--json", stdin=stdin, **environment)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def require_command_error(stack: Stack, code: str, *words: str) -> None:
    """Require that a command exits with 1, and prints only one line, on stderr."""
    process = pressroom(stack, *words, "--json")
    assert (process.returncode, process.stdout) == (1, "")
    [line] = process.stderr.splitlines()
    assert line.endswith(f"({code})"), line


def _run_main() -> int:
    load_settings.cache_clear()
    try:
        with pytest.raises(SystemExit) as end:
            main.main()
    finally:
        load_settings.cache_clear()
    assert isinstance(end.value.code, int)
    return end.value.code


@contextmanager
def _restored_process() -> Iterator[None]:
    """When the block ends, undo what a command changed in this process, such as the logging."""
    configure = structlog.configure
    configuration = structlog.get_config()
    root = logging.getLogger()
    handlers = root.handlers[:]
    level = root.level
    disabled = root.manager.disable
    # Remove the log handlers, because the command's logging configuration would close them.
    root.handlers.clear()
    with (
        # Don't cache loggers, so that no logger keeps the command's configuration.
        mock.patch.object(
            structlog,
            "configure",
            lambda **options: configure(**{**options, "cache_logger_on_first_use": False}),
        ),
        # Commands log only errors, so the log levels of libraries don't matter.
        mock.patch("core.log_output._configure_libraries"),
        mock.patch.object(sys, "excepthook", sys.excepthook),
        # Replace ``gc.freeze``, which would protect the garbage of earlier tests from collection.
        mock.patch.multiple(gc, freeze=mock.DEFAULT, set_threshold=mock.DEFAULT),
        # `pressroom doctor` calls ``os._exit``, so that it doesn't wait for threads.
        mock.patch.object(os, "_exit", sys.exit),
    ):
        try:
            yield
        finally:
            configure(**configuration)
            root.handlers[:] = handlers
            root.setLevel(level)
            logging.disable(disabled)
