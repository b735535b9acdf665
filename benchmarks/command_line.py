"""Compares the run time of two Pressroom commands with the run time of an empty Python program.

The measured commands are `pressroom --help` and `pressroom users list`, which reads the database.
All modules are compiled before the measurement, as in an installed package.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Finding, alternate, measure_seconds, median_and_spread
from benchmarks.running_stack import running_stack

# Measure many rounds, because other programs slow down some of them.
_ROUNDS = 25
# The maximum run time of each command, as a multiple of an empty Python program's run time.
_BARS = {"--help": 5.0, "users list": 15.0}


def run() -> list[Finding]:
    with running_stack() as stack, TemporaryDirectory(prefix="pressroom-bench-") as compiled:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PRESSROOM_") and name != "PYTHONDONTWRITEBYTECODE"
        } | {"PRESSROOM_HOME": str(stack["home"]), "PYTHONPYCACHEPREFIX": compiled}
        return [_compare(words, environment) for words in _BARS]


def _compare(words: str, environment: Mapping[str, str]) -> Finding:
    ours = [str(Path(sys.executable).with_name("pressroom")), *words.split()]
    pairs = alternate(
        lambda: _measure_command(ours, environment),
        lambda: _measure_command([sys.executable, "-c", "pass"], environment),
        rounds=_ROUNDS,
    )
    ratio, spread = median_and_spread(
        [product_time / baseline_time for product_time, baseline_time in pairs]
    )
    details = {
        "command ms": round(
            1000 * median_and_spread([product_time for product_time, _ in pairs])[0]
        ),
        "Python ms": round(
            1000 * median_and_spread([baseline_time for _, baseline_time in pairs])[0]
        ),
    }
    bar = _BARS[words]
    name = f"command-line: {words}"
    return Finding(name, ratio, "×", f"≤ {bar:g} ×", ratio <= bar, spread, details)


def _measure_command(command: list[str], environment: Mapping[str, str]) -> float:
    return measure_seconds(
        lambda: subprocess.run(
            command, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=60
        )
    )
