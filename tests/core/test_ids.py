from itertools import pairwise

import pytest

from core.ids import MAX_ID, neighbouring_ids


@pytest.mark.parametrize("count", [1, 2, 10_000])
def test_generated_ids_ascend_within_a_batch_and_are_safe_in_javascript(count: int) -> None:
    ids = neighbouring_ids(count)
    assert len(ids) == count
    assert ids == sorted(set(ids))
    assert ids[0] >= 1
    assert ids[-1] <= MAX_ID


def test_ids_of_one_batch_are_close_but_unpredictable_and_batches_are_far_apart() -> None:
    batches = [neighbouring_ids(1000) for _ in range(20)]
    assert all(batch[-1] - batch[0] < 2**31 for batch in batches)
    # Most distances between consecutive ids are different, so an id doesn't reveal the next id.
    gaps = {after - before for batch in batches for before, after in pairwise(batch)}
    assert len(gaps) > 18_000
    starts = sorted(batch[0] for batch in batches)
    assert starts[-1] - starts[0] > 2**50
