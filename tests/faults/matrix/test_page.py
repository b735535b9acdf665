import pytest

from tests.faults.matrix.calls import CALLS
from tests.faults.matrix.faults import FAULTS
from tests.faults.matrix.promises import PROMISES
from tests.faults.matrix.report import PAGE


@pytest.mark.check
def test_page_shows_the_promise_of_each_cell() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("|")
    ]
    shown = {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}
    assert list(shown) == list(CALLS)
    assert rows[0][1:] == list(FAULTS)
    for (fault, call), promise in PROMISES.items():
        assert shown[call][fault].partition(",")[0] == promise.worst
