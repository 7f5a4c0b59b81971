WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[], $5::text[], $6::interval[])
        AS input (id, lease_token, result, status, error, delay)
),
settled AS (
    UPDATE webhook_deliveries
    SET state = CASE
            WHEN input.result = 'delivered' THEN 'delivered'
            WHEN input.delay IS NULL THEN 'failed'
            ELSE 'due'
        END,
        tries = CASE WHEN input.result = 'delivered' THEN tries ELSE tries + 1 END,
        run_at = CASE WHEN input.delay IS NULL THEN run_at ELSE now() + input.delay END,
        lease_token = NULL,
        lease_until = NULL,
        last_status = input.status,
        last_error = input.error,
        last_attempt_at = now()
    FROM input
    WHERE webhook_deliveries.id = input.id
        AND webhook_deliveries.lease_token = input.lease_token
    RETURNING webhook_deliveries.endpoint_id, input.result
),
judged AS (
    SELECT endpoint_id, bool_or(result = 'delivered') AS took_one, bool_or(result = 'gone') AS is_gone
    FROM settled
    GROUP BY endpoint_id
),
-- One order of locks for all, and no write while an endpoint does as it did before.
changing AS MATERIALIZED (
    SELECT
        webhook_endpoints.id, judged.took_one, judged.is_gone,
        NOT judged.took_one AND webhook_endpoints.failing_since < now() - $7::interval AS failed_long
    FROM judged
    JOIN webhook_endpoints ON webhook_endpoints.id = judged.endpoint_id
    WHERE webhook_endpoints.enabled
        AND (
            judged.is_gone
            OR judged.took_one = (webhook_endpoints.failing_since IS NOT NULL)
            OR webhook_endpoints.failing_since < now() - $7::interval
        )
    ORDER BY webhook_endpoints.id
    FOR UPDATE OF webhook_endpoints
),
changed AS (
    UPDATE webhook_endpoints
    SET failing_since = CASE WHEN NOT changing.took_one THEN COALESCE(webhook_endpoints.failing_since, now()) END,
        enabled = NOT (changing.is_gone OR COALESCE(changing.failed_long, false)),
        disabled_reason = CASE
            WHEN changing.is_gone THEN 'gone'
            WHEN changing.failed_long THEN 'failing'
        END,
        updated_at = now()
    FROM changing
    WHERE webhook_endpoints.id = changing.id
    RETURNING
        webhook_endpoints.id, webhook_endpoints.merchant_id, webhook_endpoints.url, webhook_endpoints.events,
        webhook_endpoints.description, webhook_endpoints.enabled, webhook_endpoints.disabled_reason,
        webhook_endpoints.failing_since, webhook_endpoints.created_at, webhook_endpoints.updated_at
),
disabled AS (
    SELECT *
    FROM changed
    WHERE NOT enabled
),
published AS (
    INSERT INTO events (merchant_id, type, object_id, version, snapshot)
    SELECT
        merchant_id, 'webhook_endpoint.disabled', gen_random_uuid(), 1,
        -- As the API shows it.
        jsonb_strip_nulls(jsonb_build_object(
            'id', 'whe_' || replace(id::text, '-', ''), 'url', url, 'events', events, 'description', description,
            'enabled', enabled, 'disabled_reason', disabled_reason,
            'failing_since', to_char(failing_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'created_at', to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'updated_at', to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        ))
    FROM disabled
    RETURNING merchant_id, position, id, type
),
deliveries AS (
    INSERT INTO webhook_deliveries (endpoint_id, merchant_id, event_position, event_id)
    SELECT webhook_endpoints.id, published.merchant_id, published.position, published.id
    FROM published
    JOIN webhook_endpoints
        ON webhook_endpoints.merchant_id = published.merchant_id
        AND webhook_endpoints.enabled
        AND webhook_endpoints.id NOT IN (SELECT id FROM disabled)
        AND (webhook_endpoints.events = '{}' OR published.type = ANY(webhook_endpoints.events))
)
SELECT id, merchant_id, disabled_reason AS "reason!"
FROM disabled
