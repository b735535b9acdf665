"""How long `pressroom --help` and a command of the database take, against Python's bare start.

All have their code compiled beforehand, as an installed package has it.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Finding, alternate, median_and_spread, seconds_of
from benchmarks.running_stack import running_stack

# A round in a few is far off where other programs run too.
_ROUNDS = 25
# Multiples of Python's start.
_BARS = {"--help": 5.0, "users list": 15.0}


def run() -> list[Finding]:
    with running_stack() as stack, TemporaryDirectory(prefix="pressroom-bench-") as compiled:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PRESSROOM_") and name != "PYTHONDONTWRITEBYTECODE"
        } | {"PRESSROOM_HOME": str(stack["home"]), "PYTHONPYCACHEPREFIX": compiled}
        return [_finding(words, environment) for words in _BARS]


def _finding(words: str, environment: Mapping[str, str]) -> Finding:
    ours = [str(Path(sys.executable).with_name("pressroom")), *words.split()]
    pairs = alternate(
        lambda: _seconds(ours, environment),
        lambda: _seconds([sys.executable, "-c", "pass"], environment),
        rounds=_ROUNDS,
    )
    ratio, spread = median_and_spread([mine / bare for mine, bare in pairs])
    details = {
        "command ms": round(1000 * median_and_spread([mine for mine, _ in pairs])[0]),
        "Python ms": round(1000 * median_and_spread([bare for _, bare in pairs])[0]),
    }
    bar = _BARS[words]
    name = f"command-line: {words}"
    return Finding(name, ratio, "×", f"≤ {bar:g} ×", ratio <= bar, spread, details)


def _seconds(command: list[str], environment: Mapping[str, str]) -> float:
    return seconds_of(
        lambda: subprocess.run(
            command, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=60
        )
    )
