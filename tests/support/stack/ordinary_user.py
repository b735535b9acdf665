"""Runs commands as a user without privileges."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.stack.open_checkout import Checkout, as_ordinary_user


@dataclass(frozen=True)
class OrdinaryUser:
    """A user without root's powers, with a directory that belongs to this user."""

    directory: Path
    checkout: Checkout

    def run_python(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run_in(
            self.directory, str(self.checkout.python), *words, **{**self._modules(), **variables}
        )

    def run_in(
        self, directory: Path, /, *words: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            as_ordinary_user(*words),
            check=False,
            capture_output=True,
            text=True,
            cwd=directory,
            env={**os.environ, "HOME": str(self.directory), **variables},
        )

    def _modules(self) -> dict[str, str]:
        modules = (self.checkout.source, self.checkout.packages)
        libraries = {"LD_LIBRARY_PATH": str(self.checkout.libraries)}
        return {
            "PYTHONPATH": os.pathsep.join(map(str, modules)),
            **(libraries if self.checkout.libraries else {}),
        }
