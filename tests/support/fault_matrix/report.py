"""Writes the results of the full fault matrix into build/fault-matrix.md."""

from pathlib import Path

from tests.support.fault_matrix.calls import CALLS
from tests.support.fault_matrix.faults import FAULTS
from tests.support.fault_matrix.promises import PROMISES, WorstOutcome
from tests.support.fault_matrix.run import Observed, Samples, p99, slowdown

REPORT_FILE = Path(__file__).parents[3] / "build" / "fault-matrix.md"


class Report:
    def __init__(self, quiet: Samples) -> None:
        self.quiet = quiet
        self.observed: dict[str, Observed] = {}

    def write(self) -> None:
        REPORT_FILE.parent.mkdir(exist_ok=True)
        REPORT_FILE.write_text(self._table())

    def _table(self) -> str:
        rows = [["call", *FAULTS], ["---"] * (len(FAULTS) + 1)]
        rows += [[call, *(self._cell(fault, call) for fault in FAULTS)] for call in CALLS]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)

    def _cell(self, fault: str, call: str) -> str:
        promise = PROMISES[fault, call]
        if fault not in self.observed:
            return str(promise.worst)
        observed = self.observed[fault]
        if promise.worst is WorstOutcome.UNTOUCHED:
            return f"{promise.worst}, {slowdown(call, self.quiet, observed):.1f} ×"
        return f"{promise.worst}, {p99(observed.during[call]):.1f} s"
