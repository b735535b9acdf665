"""Repeats only those tests that failed in an earlier test run.

Usage: repeat_failed.py RECORD TIER BASE

RECORD is the JSON file in which `tests/runner/failed_tests.py` recorded the failed tests. TIER is
the test tier of the recorded run, and is passed to pytest as `--tier`. BASE is the Git commit that
the tested change is based on.

If every repeated test passes, the exit status is 0, and the ids of these tests are appended to
`repeated.txt` in the folder of RECORD.

In these cases no test is repeated, and the exit status is 1:

- The run ended for a reason other than failed tests, or pytest could not collect a file.
- More than ten tests failed, because the cause is then probably the change.
- The change adds or edits one of the failed tests. The author of a test must see that the test is
  unreliable.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

MAX_REPEATED_TESTS = 10
TESTS_FAILED = 1  # pytest.ExitCode.TESTS_FAILED


def main(record: Path, tier: str, base: str) -> int:
    """Repeat the tests in the record, and return the exit status."""
    run = json.loads(record.read_text()) if record.exists() else {"exit_status": None, "failed": []}
    node_ids = run["failed"]
    obstacle = find_obstacle(run["exit_status"], node_ids, base)
    if obstacle:
        print(f"No failed test is repeated: {obstacle}.")
        return 1
    print(f"{len(node_ids)} failed tests are repeated. Their first reports: {record.stem}.log.")
    command = [sys.executable, "-m", "pytest", "--tier", tier, *node_ids]
    if subprocess.run(command, check=False).returncode != 0:
        return 1
    with record.with_name("repeated.txt").open("a") as file:
        file.writelines(f"{node_id}\n" for node_id in node_ids)
    return 0


def find_obstacle(exit_status: int | None, node_ids: list[str], base: str) -> str | None:
    """Return the reason not to repeat the failed tests, or ``None`` if they may be repeated."""
    if exit_status != TESTS_FAILED or not node_ids:
        return "the run did not end by failed tests"
    if len(node_ids) > MAX_REPEATED_TESTS:
        return f"{len(node_ids)} tests failed, more than {MAX_REPEATED_TESTS}"
    if not base:
        return "there is no commit to compare the tests with"
    for node_id in node_ids:
        file, separator, _ = node_id.partition("::")
        if not separator:
            return f"{file} could not be collected"
        if is_altered(node_id, base):
            return f"the change adds or alters {node_id}"
    return None


def is_altered(node_id: str, base: str) -> bool:
    """Return whether the code of a test is new or has changed since the commit ``base``.

    The code of a test includes the definitions in its module that the test uses, such as fixtures
    and lists of parameters.
    """
    file, name = node_id.split("::")[:2]
    name = name.partition("[")[0]
    old = subprocess.run(["git", "show", f"{base}:{file}"], capture_output=True, check=False)
    if old.returncode != 0:
        return True
    return source_of_test(old.stdout, name) != source_of_test(Path(file).read_bytes(), name)


def source_of_test(module: bytes, name: str) -> dict[str, str]:
    """Return the code of a test and of each definition that the test uses, by name."""
    definitions: dict[str, list[ast.stmt]] = {}
    for statement in ast.parse(module).body:
        for defined in names_defined_by(statement):
            definitions.setdefault(defined, []).append(statement)
    sources: dict[str, str] = {}
    pending = [name]
    while pending:
        used = pending.pop()
        if used in sources or used not in definitions:
            continue
        sources[used] = "\n".join(ast.dump(statement) for statement in definitions[used])
        nodes = (node for statement in definitions[used] for node in ast.walk(statement))
        for node in nodes:
            if isinstance(node, ast.Name):
                pending.append(node.id)
            elif isinstance(node, ast.arg):
                # The parameter may be the name of a fixture in this module.
                pending.append(node.arg)
    return sources


def names_defined_by(statement: ast.stmt) -> list[str]:
    """Return the names that a top-level statement defines. Imports are ignored."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return []
    nodes = ast.walk(statement)
    return [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
