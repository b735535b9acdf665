"""Removes the effects of an undone import from the daily statistics of its list.

The database trigger ``count_subscribers`` knows nothing about undos. If an undo removes a member,
``count_subscribers`` counts a departure on the day of the undo. From the daily statistics, the SQL
of this module subtracts both this departure and the arrival that was counted on the day of the
import. An undone import therefore appears neither in ``joined`` nor in ``left``. If an import
changed a member's tier, the daily statistics contain two changes of tier: one by the import, and
one by the undo. The SQL subtracts both changes.

For each source and tier, the corrections of all days add up to zero. The sum of the daily
statistics therefore still equals the number of active members. Corrections with the same day,
source and tier are combined, so that a batch of many members needs only a few rows.
"""

# Each row of the subquery ``{corrections}`` corrects the daily statistics for one member. The
# column ``moment`` contains the time of the change to correct, and ``type`` contains a tier. The
# columns ``joined``, ``gone``, ``moved_in`` and ``moved_out`` contain the amounts to add to the
# daily statistics. The trigger ``count_subscribers`` counts the changes by an undo on the day of
# the undo, so corrections of these changes have the time ``now()``.
_INSERT_CORRECTIONS = """
INSERT INTO member_day_deltas (list_id, day, source, type, joined, gone, moved_in, moved_out)
SELECT :list_id, CAST(c.moment AT TIME ZONE 'UTC' AS date), c.source, c.type,
    sum(c.joined), sum(c.gone), sum(c.moved_in), sum(c.moved_out)
FROM ({corrections}) AS c (source, moment, type, joined, gone, moved_in, moved_out)
GROUP BY 2, c.source, c.type
"""
# The undo of an earlier import may have changed a member's tier. The member then joined with one
# tier and leaves with another. A change of tier on the day of the undo connects the two tiers.
_CORRECT_RESTORED = """
    SELECT u.source, v.* FROM untouched AS u CROSS JOIN LATERAL (VALUES
        (u.applied_at, u.type_after, -1, 0, 0, 0),
        (now(), u.last_type, 0, -1, 0, CAST(u.last_type <> u.type_after AS int)),
        (now(), u.type_after, 0, 0, CAST(u.last_type <> u.type_after AS int), 0)
    ) AS v WHERE u.last_status = 'active' AND u.status <> 'active'
"""
_CORRECT_TIERS = """
    SELECT u.source, v.* FROM untouched AS u CROSS JOIN LATERAL (VALUES
        (u.applied_at, u.type_after, 0, 0, -1, 0), (u.applied_at, u.type, 0, 0, 0, -1),
        (now(), u.type, 0, 0, -1, 0), (now(), u.type_after, 0, 0, 0, -1)
    ) AS v
    WHERE u.last_status = 'active' AND u.status = 'active'
        AND u.last_type = u.type_after AND u.type <> u.type_after
"""
# A later import changed the tier that the undone import had set. The undo of the later import will
# restore the tier from before both imports, so the later import's change now starts at this tier.
_CORRECT_LATER_TIERS = """
    SELECT m.source, v.* FROM later AS l JOIN subscriptions AS m ON m.id = l.subscription_id
    CROSS JOIN LATERAL (VALUES
        (l.applied_at, l.last_type_before, 0, 0, 0, -1), (l.applied_at, l.type_before, 0, 0, 0, 1),
        (now(), l.last_type_before, 0, 0, 0, 1), (now(), l.type_before, 0, 0, 1, 0)
    ) AS v
    WHERE NOT l.activated AND l.type_before <> l.last_type_before
        AND l.type_after <> l.last_type_before
"""
_CORRECT_REMOVED = """
    SELECT r.source, v.* FROM removed AS r CROSS JOIN LATERAL (VALUES
        (r.imported_at, r.type, -1, 0, 0, 0), (now(), r.type, 0, -1, 0, 0)
    ) AS v
"""
# Stores corrections of the daily numbers of joins and departures per sign-up origin. Each row of
# the subquery ``{corrections}`` corrects one join or departure of a member. The column ``moment``
# contains the time of this join or departure. The columns ``joined`` and ``gone`` contain the
# amounts to add to the daily numbers, and ``source`` the way in which the member first joined.
_INSERT_ORIGIN_CORRECTIONS = """
INSERT INTO origin_day_deltas
    (list_id, day, utm_source, utm_medium, utm_campaign, referrer, joined, gone, imported)
SELECT :list_id, CAST(c.moment AT TIME ZONE 'UTC' AS date), coalesce(c.origin ->> 'utm_source', ''),
    coalesce(c.origin ->> 'utm_medium', ''), coalesce(c.origin ->> 'utm_campaign', ''),
    coalesce(c.origin ->> 'referrer', ''), sum(c.joined), sum(c.gone),
    coalesce(sum(c.joined) FILTER (WHERE c.source = 'import'), 0)
FROM ({corrections}) AS c (origin, source, moment, joined, gone)
WHERE c.origin IS NOT NULL
GROUP BY 2, 3, 4, 5, 6
"""
# Joins before migration 0139 weren't counted by page, so an undo subtracts at most the counted
# joins.
_INSERT_LANDING_CORRECTIONS = """
INSERT INTO landing_day_deltas (list_id, day, landing, joined, gone, imported)
SELECT :list_id, c.day, c.landing, greatest(c.joined, -counted.joined), c.gone, c.imported
FROM (
    SELECT CAST(c.moment AT TIME ZONE 'UTC' AS date) AS day, c.origin ->> 'landing' AS landing,
        sum(c.joined) AS joined, sum(c.gone) AS gone,
        coalesce(sum(c.joined) FILTER (WHERE c.source = 'import'), 0) AS imported
    FROM ({corrections}) AS c (origin, source, moment, joined, gone)
    WHERE c.origin ->> 'landing' IS NOT NULL
    GROUP BY 1, 2
) AS c CROSS JOIN LATERAL (
    SELECT coalesce(sum(joined), 0) AS joined FROM (
        SELECT d.joined FROM landing_days AS d
        WHERE d.list_id = :list_id AND d.day = c.day AND d.landing = c.landing
        UNION ALL
        SELECT d.joined FROM landing_day_deltas AS d
        WHERE d.list_id = :list_id AND d.day = c.day AND d.landing = c.landing
    ) AS days
) AS counted
"""
_CORRECT_RESTORED_ORIGINS = """
    SELECT u.origin, u.source, v.* FROM untouched AS u CROSS JOIN LATERAL (VALUES
        (u.applied_at, -1, 0), (now(), 0, -1)
    ) AS v WHERE u.last_status = 'active' AND u.status <> 'active'
"""
_CORRECT_REMOVED_ORIGINS = """
    SELECT r.origin, r.source, v.* FROM removed AS r CROSS JOIN LATERAL (VALUES
        (r.imported_at, -1, 0), (now(), 0, -1)
    ) AS v
"""
CORRECT_ORIGINS_FOR_RESTORED = _INSERT_ORIGIN_CORRECTIONS.format(
    corrections=_CORRECT_RESTORED_ORIGINS
)
CORRECT_ORIGINS_FOR_REMOVED = _INSERT_ORIGIN_CORRECTIONS.format(
    corrections=_CORRECT_REMOVED_ORIGINS
)
CORRECT_LANDINGS_FOR_RESTORED = _INSERT_LANDING_CORRECTIONS.format(
    corrections=_CORRECT_RESTORED_ORIGINS
)
CORRECT_LANDINGS_FOR_REMOVED = _INSERT_LANDING_CORRECTIONS.format(
    corrections=_CORRECT_REMOVED_ORIGINS
)
# Corrects the daily statistics after an undo has restored members. The statement reads the members
# from the query ``untouched``, and the changes of later imports from the query ``later``.
CORRECT_FOR_RESTORED = _INSERT_CORRECTIONS.format(
    corrections=f"{_CORRECT_RESTORED} UNION ALL {_CORRECT_TIERS} UNION ALL {_CORRECT_LATER_TIERS}"
)
# Corrects the daily statistics after an undo has removed the members in the query ``removed``.
CORRECT_FOR_REMOVED = _INSERT_CORRECTIONS.format(corrections=_CORRECT_REMOVED)
