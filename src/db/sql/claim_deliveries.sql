-- From endpoint to endpoint, so that each has its share however much waits for another.
WITH RECURSIVE visited AS (
    (
        SELECT endpoint_id, 1 AS number
        FROM webhook_deliveries
        WHERE state = 'due'
            AND endpoint_id > $1
        ORDER BY endpoint_id, run_at
        LIMIT 1
    )
    UNION ALL
    SELECT next.endpoint_id, visited.number + 1
    FROM visited
    CROSS JOIN LATERAL (
        SELECT endpoint_id
        FROM webhook_deliveries
        WHERE state = 'due'
            AND endpoint_id > visited.endpoint_id
        ORDER BY endpoint_id, run_at
        LIMIT 1
    ) AS next
    WHERE visited.number < $2::bigint
),
picked AS MATERIALIZED (
    SELECT due.id
    FROM visited
    JOIN webhook_endpoints
        ON webhook_endpoints.id = visited.endpoint_id
        AND webhook_endpoints.enabled
    LEFT JOIN unnest($3::uuid[], $4::bigint[]) AS busy (endpoint_id, number)
        ON busy.endpoint_id = visited.endpoint_id
    CROSS JOIN LATERAL (
        SELECT webhook_deliveries.id
        FROM webhook_deliveries
        WHERE webhook_deliveries.state = 'due'
            AND webhook_deliveries.endpoint_id = visited.endpoint_id
            AND webhook_deliveries.run_at <= now()
        ORDER BY webhook_deliveries.run_at
        -- One that fails is asked by one delivery at a time.
        LIMIT GREATEST(
            CASE WHEN webhook_endpoints.failing_since IS NULL THEN $5::bigint ELSE 1 END - COALESCE(busy.number, 0), 0
        )
        FOR UPDATE SKIP LOCKED
    ) AS due
    LIMIT $6::bigint
),
leased AS (
    UPDATE webhook_deliveries
    SET state = 'leased',
        attempt = attempt + 1,
        lease_token = $7,
        lease_until = now() + $8::interval
    FROM picked
    WHERE webhook_deliveries.id = picked.id
    RETURNING
        webhook_deliveries.id, webhook_deliveries.endpoint_id, webhook_deliveries.merchant_id,
        webhook_deliveries.event_position, webhook_deliveries.event_id, webhook_deliveries.attempt,
        webhook_deliveries.tries
)
SELECT
    leased.id AS "id!", leased.endpoint_id AS "endpoint_id!", leased.merchant_id AS "merchant_id!",
    leased.event_position AS "event_position!", leased.event_id AS "event_id!", leased.attempt AS "attempt!",
    leased.tries AS "tries!",
    webhook_endpoints.url, webhook_endpoints.secret,
    CASE
        WHEN webhook_endpoints.previous_secret_until > now() THEN webhook_endpoints.previous_secret
    END AS previous_secret,
    events.type AS "event_type?", events.object_id AS "object_id?", events.version AS "version?", events.body
FROM leased
JOIN webhook_endpoints ON webhook_endpoints.id = leased.endpoint_id
LEFT JOIN events
    ON events.merchant_id = leased.merchant_id
    AND events.position = leased.event_position
    AND events.id = leased.event_id
ORDER BY leased.endpoint_id
