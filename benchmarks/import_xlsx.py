"""Measures imports of Excel workbooks.

A large workbook is compared with a CSV file with the same rows, and ten small workbooks at once are
compared with the same workbooks one after the other.
"""

import csv
import datetime
import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import xlsxwriter

from benchmarks.bulk_stack import BulkBench, Person, bulk_bench, create_people
from benchmarks.measure import Finding, alternate, measure_seconds, median_and_spread

MEMBERS = 100_000
ROUNDS = 3
MAX_TIMES = 2.0
MAX_MB = 300.0
SMALL_WORKBOOKS = 10
ROWS_OF_SMALL_WORKBOOK = 2
HEADER = (
    *("Email", "First name", "Last name", "City", "Company"),
    *("Joined at", "Score", "VIP", "Postcode", "Notes"),
)
_FIRST_DAY = datetime.date(2020, 1, 1)


def run() -> list[Finding]:
    with bulk_bench() as bench:
        _import(bench, _build_csv, "members.csv")
        with bench.measure_peak(largest_only=True) as csv_peak:
            _import(bench, _build_csv, "members.csv")
        peaks: list[float] = []

        def product() -> float:
            with bench.measure_peak(largest_only=True) as peak:
                seconds = _import(bench, _build_workbook, "members.xlsx")
            peaks.append(peak[0])
            return seconds

        pairs = alternate(product, lambda: _import(bench, _build_csv, "members.csv"), rounds=ROUNDS)
        times, spread = median_and_spread([workbook / text for workbook, text in pairs])
        megabytes, megabytes_spread = median_and_spread(peaks)
        details = {
            "workbook_s": round(median_and_spread([workbook for workbook, _ in pairs])[0], 1),
            "csv_s": round(median_and_spread([text for _, text in pairs])[0], 1),
        }
        name = f"import-xlsx: {MEMBERS:,} rows × {len(HEADER)} columns"
        return [
            Finding(name, times, "×", f"≤ {MAX_TIMES:g} ×", times <= MAX_TIMES, spread, details),
            Finding(
                f"{name}, worker and its child",
                *(megabytes, "MB", f"≤ {MAX_MB:g} MB", megabytes <= MAX_MB, megabytes_spread),
                {"csv_mb": round(csv_peak[0], 1)},
            ),
            _compare_small_workbooks(bench),
        ]


def _compare_small_workbooks(bench: BulkBench) -> Finding:
    def import_all(threads: int) -> float:
        """Return how many seconds the imports take if ``threads`` of them run at a time."""
        files = [create_people(ROWS_OF_SMALL_WORKBOOK) for _ in range(SMALL_WORKBOOKS)]
        contents = [*map(_build_workbook, files)]
        list_ids = [bench.new_list() for _ in files]

        def import_one(list_id: int, content: bytes) -> None:
            bench.import_file(list_id, content, ROWS_OF_SMALL_WORKBOOK, "members.xlsx")

        with ThreadPoolExecutor(threads) as pool:
            return measure_seconds(lambda: [*pool.map(import_one, list_ids, contents)])

    pairs = alternate(lambda: import_all(SMALL_WORKBOOKS), lambda: import_all(1), rounds=ROUNDS)
    times, spread = median_and_spread([at_once / in_turn for at_once, in_turn in pairs])
    [(max_sends,)] = bench.stack.query("SELECT max(sends) FROM jobs WHERE kind = 'members.import'")
    name = f"import-xlsx: {SMALL_WORKBOOKS} workbooks of {ROWS_OF_SMALL_WORKBOOK} rows at once"
    details = {"messages_per_job": max_sends}
    met = times <= MAX_TIMES and max_sends == 1
    bar = f"≤ {MAX_TIMES:g} × in turn, 1 message per job"
    return Finding(name, times, "×", bar, met, spread, details)


def _import(
    bench: BulkBench, build_file: Callable[[Sequence[Person]], bytes], filename: str
) -> float:
    """Return how many seconds an import of new members takes."""
    content = build_file(create_people(MEMBERS))
    list_id = bench.new_list()
    return measure_seconds(lambda: bench.import_file(list_id, content, MEMBERS, filename))


def _list_rows(people: Sequence[Person]) -> Iterator[tuple[object, ...]]:
    for number, (email, name) in enumerate(people):
        first, _, last = name.partition(" ")
        day = _FIRST_DAY + datetime.timedelta(days=number % 2_000)
        yield (
            *(email, first, last, f"City {number % 500}", f"Company {number % 7_000}"),
            *(day, number / 4, number % 2 == 0, 10_000 + number % 90_000, f"Note {number}"),
        )


def _build_csv(people: Sequence[Person]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([HEADER, *_list_rows(people)])
    return text.getvalue().encode()


def _build_workbook(people: Sequence[Person]) -> bytes:
    file = io.BytesIO()
    with xlsxwriter.Workbook(file, {"in_memory": True}) as book:
        sheet = book.add_worksheet("Members")
        sheet.set_column("F:F", None, book.add_format({"num_format": "dd/mm/yyyy"}))
        sheet.write_row(0, 0, HEADER)
        for number, row in enumerate(_list_rows(people), start=1):
            sheet.write_row(number, 0, row)
    return file.getvalue()
