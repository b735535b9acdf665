"""Which parts of the full tier a landing runs, by the files that it changes."""

import subprocess

import pytest

from tests.docs.markdown import ROOT


@pytest.mark.check
@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        (["README.md", "services/credits/ledger.py", "api/routes/lists.py"], []),
        (["services/jobs/lease.py", "workers/main.py"], ["faults"]),
        (["storage/broker.py", "requirements.txt"], ["faults", "processes", "containers"]),
        (["api/html/pages.css", "api/console/pages/lists.py"], ["browser"]),
        (["clients/typescript/static/client.js"], ["browser", "clients"]),
        (["devstack/__main__.py", "storage/migrations/env.py"], ["processes", "machines"]),
        (["services/subscriptions/imports/records.py"], ["properties"]),
    ],
)
def test_a_changed_file_names_the_parts_that_can_break_by_it(
    changed: list[str], parts: list[str]
) -> None:
    affected = subprocess.run(
        [ROOT / ".ci" / "affected"],
        input="".join(f"{path}\n" for path in changed),
        capture_output=True,
        text=True,
        check=True,
    )
    assert affected.stdout.split() == parts
