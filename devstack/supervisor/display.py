"""Shows the progress, addresses and events of a stack on the terminal."""

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from devstack.documentation import find_documentation
from devstack.supervisor.child import Child
from devstack.supervisor.home_folder import Run

# Ignores errors of a closed terminal, so that the stack can still shut down gracefully.
_IGNORE_CLOSED_TERMINAL = suppress(OSError)


class Display:
    """If ``as_json`` is true, standard output contains a single JSON document.

    ``hides_stack``: show no addresses and logins.
    """

    def __init__(self, *, as_json: bool = False, hides_stack: bool = False) -> None:
        self._as_json = as_json
        self._hides_stack = hides_stack
        self._console = Console(stderr=as_json, highlight=False)
        self._announced: set[str] = set()

    def show_progress(self, children: Sequence[Child]) -> None:
        """Show each child process that has become ready or has finished since the last call."""
        for child in children:
            if child.is_usable and child.name not in self._announced:
                self._announced.add(child.name)
                word = "done" if child.program.runs_once else "ready"
                self.report(f"{child.name} {word} after {child.startup_seconds:.1f} s")

    def report(self, sentence: str) -> None:
        with _IGNORE_CLOSED_TERMINAL:
            self._console.print(sentence, soft_wrap=True, markup=False)

    def show_stack(self, run: Run) -> None:
        if self._hides_stack:
            return
        with _IGNORE_CLOSED_TERMINAL:
            if self._as_json:
                print_json(run.model_dump(mode="json"))
                return
            table = Table.grid(padding=(0, 3))
            table.add_column(style="bold")
            for name, value in (
                ("Console", f"{run.api_url}/console"),
                ("    login", f"{run.demo.email} / {run.demo.password}"),
                ("API", run.api_url),
                ("    key", run.demo.api_key),
                ("    reference", f"{run.api_url}/docs"),
                ("    guides", find_documentation()),
                ("Flower", run.flower_url),
                ("    login", f"{run.flower_user} / {run.flower_password}"),
                ("Sandbox", run.sandbox_url),
                ("Mailbox", run.mailbox_url),
                ("Status", run.status_url),
                ("Data and logs", str(run.home)),
            ):
                if value is not None:
                    table.add_row(name, Text(value, overflow="fold"))
            upload = ["curl", "-sS", "-H", f"Authorization: Bearer {run.demo.api_key}"]
            upload += ["-F", f"file=@{run.sample_photo}", f"{run.api_url}/attachments"]
            # Print the upload command outside the panel, so that users can copy it without the
            # frame.
            self._console.print(Panel(table, title="Pressroom is ready", border_style="green"))
            self._console.print("Upload a picture:", style="bold")
            self._console.print(shlex.join(upload), soft_wrap=True, markup=False)
            if run.demo.login_link is not None:
                self._console.print("\nLog in to the console:", style="bold", end=" ")
                self._console.print("the link works once, within 30 minutes.")
                self._console.print(run.demo.login_link, soft_wrap=True, markup=False)
            command = shlex.quote(_find_command())
            self._console.print(f"\nStop with Ctrl-C or `{command} down`.", markup=False)


def _find_command() -> str:
    """Return the command ``pressroom`` as the user can type it in the current directory."""
    command = Path(sys.executable).with_name("pressroom")
    if shutil.which("pressroom") == str(command) or not command.exists():
        return "pressroom"
    with suppress(ValueError):
        return str(command.relative_to(Path.cwd()))
    return str(command)


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
    sys.stdout.flush()
