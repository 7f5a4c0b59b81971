WITH walked AS MATERIALIZED (
    SELECT position, id, type
    FROM events
    WHERE merchant_id = $1
        AND (position, id) > ($2, $3)
        -- Whoever writes an event has a transaction's number before, and none below this one is under way.
        AND position < (pg_snapshot_xmin(pg_current_snapshot())::text)::bigint
    ORDER BY position, id
    LIMIT $4
),
found AS (
    SELECT position, id
    FROM walked
    WHERE $5::text[] = '{}'
        OR type = ANY($5)
    ORDER BY position, id
    LIMIT $6
)
SELECT
    walked.position AS "end_position!", walked.id AS "end_id!",
    events.type AS "type?", events.charge_id, events.object_id AS "object_id?", events.version AS "version?",
    events.snapshot AS "snapshot?", events.at AS "at?"
FROM (
    SELECT position, id, true AS is_found
    FROM found
    UNION ALL
    -- Where the walk ended, if it went on after the last of them.
    SELECT position, id, false
    FROM (SELECT position, id FROM walked ORDER BY position DESC, id DESC LIMIT 1) AS last
    WHERE (SELECT count(*) FROM found) < $6
) AS walked
LEFT JOIN events
    ON walked.is_found
    AND events.merchant_id = $1
    AND events.position = walked.position
    AND events.id = walked.id
ORDER BY walked.position, walked.id, walked.is_found DESC
