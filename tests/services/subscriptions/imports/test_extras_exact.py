from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.ids import random_hash_id
from services.subscriptions.imports import split
from tests.importing import Importing, csv_of
from tests.services.subscriptions.imports.test_extras import HEADER, make_fields, shown
from tests.sizes import sized

PEOPLE = 6


@dataclass(frozen=True)
class Row:
    who: int
    name: str = ""
    company: str = ""
    age: str = ""
    tags: frozenset[str] = frozenset()
    joined: str = ""

    def cells(self, suffix: str) -> list[str]:
        tags = ",".join(sorted(self.tags))
        return [f"{self.who}{suffix}", self.name, self.company, self.age, tags, self.joined]

    @property
    def fields(self) -> dict[str, object]:
        ages: dict[str, object] = {"age": int(self.age)} if self.age.isdigit() else {}
        return ages | ({"company": self.company} if self.company else {})


@dataclass(frozen=True)
class Kept:
    name: str | None = None
    fields: dict[str, object] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    joined: str = ""

    def brought(self, row: Row, *, update: bool) -> "Kept":
        """What an active member has after a row."""
        return replace(
            self,
            name=row.name if update and row.name else self.name,
            fields=self.fields | row.fields if update else row.fields | self.fields,
            tags=self.tags | row.tags,
            joined=self.joined or row.joined,
        )


ROWS = st.lists(
    st.builds(
        Row,
        who=st.integers(0, PEOPLE - 1),
        name=st.sampled_from(["", "Ada", "Bea"]),
        company=st.sampled_from(["", "Acme", "B\\C\t\"'D", "Ωmega"]),
        age=st.sampled_from(["", "1", "2", "old"]),
        tags=st.frozensets(st.sampled_from(["a", "b", "Ça va"]), max_size=3),
        joined=st.sampled_from(["", "2019-05-06", "2020-07-08"]),
    ),
    min_size=1,
    max_size=8,
)


def bring(kept: dict[int, Kept], rows: list[Row], *, update: bool) -> tuple[dict[int, Kept], int]:
    """The members after a file, and how many values were left out."""
    after, seen, left_out = dict(kept), set[int](), 0
    for row in rows:
        if row.who in seen:
            continue
        seen.add(row.who)
        left_out += row.age == "old"
        if row.who in kept:
            after[row.who] = kept[row.who].brought(row, update=update)
        else:
            after[row.who] = Kept(row.name or None, row.fields, row.tags, row.joined)
    return after, left_out


@pytest.mark.both("properties")
@pytest.mark.slow
@settings(
    max_examples=sized(12, 500, few=2),
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(first=ROWS, second=ROWS, update=st.booleans(), chunk=st.integers(1, 4))
def test_any_file_gives_what_the_rules_say_and_is_taken_back(
    importing: Importing, first: list[Row], second: list[Row], update: bool, chunk: int
) -> None:
    owner = importing.stack.new_owner()
    list_id, suffix = importing.new_list(owner), f".{random_hash_id(8)}@example.com"
    make_fields(importing, owner)

    def found() -> dict[int, Kept]:
        return {
            int(email[0]): Kept(
                each["name"], each["fields"], frozenset(each["tags"]), each["joined_at"] or ""
            )
            for email, each in shown(importing, owner, list_id).items()
        }

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(split, "ROWS_PER_CHUNK", chunk)
        importing.bring(owner, list_id, csv_of([row.cells(suffix) for row in first], HEADER))
        kept, _ = bring({}, first, update=False)
        assert found() == kept
        before = importing.records(list_id)
        file = csv_of([row.cells(suffix) for row in second], HEADER)
        options = {"on_existing": "update" if update else "skip"}
        assert importing.bring(owner, list_id, file, dry_run=True, **options).added == sum(
            each not in kept for each in {row.who for row in second}
        )
        assert importing.records(list_id) == before
        task = importing.bring(owner, list_id, file, **options)

    after, left_out = bring(kept, second, update=update)
    assert found() == after
    assert task.left_out == left_out
    assert task.updated == sum(after[each] != kept[each] for each in kept)
    importing.take_back(owner, task.id)
    assert importing.records(list_id) == before
