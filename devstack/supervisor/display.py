"""Shows the progress, addresses and events of a stack on the terminal."""

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress

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
    """If ``as_json`` is true, standard output contains a single JSON document."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
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
            self._console.print("\nStop with Ctrl-C or `pressroom down`.", markup=False)


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
    sys.stdout.flush()
