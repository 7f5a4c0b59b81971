-- Locked first and only where nobody holds it: a claim under way has this row or waits for it.
WITH job AS MATERIALIZED (
    SELECT id
    FROM outbox
    WHERE charge_id = $1
        AND kind = 'charge'
        AND state IN ('ready', 'parked')
    FOR UPDATE
),
charge AS (
    UPDATE charges
    SET stage = 'canceled',
        money = 'not_moved',
        version = version + 1,
        cancel_requested_at = COALESCE(cancel_requested_at, now()),
        updated_at = now(),
        finished_at = now()
    FROM job
    WHERE charges.id = $1
        AND charges.merchant_id = $2
        AND charges.stage IN ('pending', 'processing')
        AND charges.money = 'not_moved'
        AND charges.provider_charge_id IS NULL
        AND charges.created_at > now() - $3::interval
        AND NOT EXISTS (SELECT FROM pauses WHERE kind = 'recovery')
        AND NOT EXISTS (
            SELECT
            FROM stray_objects
            WHERE stray_objects.charge_id = $1
                AND stray_objects.settled_at IS NULL
        )
    RETURNING
        charges.id, charges.merchant_id, charges.idempotency_key, charges.version, job.id AS job_id,
        charges.stage, charges.money, charges.attempts, charges.provider_charge_id
),
requests AS (
    UPDATE idempotent_requests
    SET status = 'failed',
        updated_at = now()
    FROM charge
    WHERE idempotent_requests.merchant_id = charge.merchant_id
        AND idempotent_requests.operation = 'charge'
        AND idempotent_requests.client_key = charge.idempotency_key
),
jobs AS (
    DELETE FROM outbox
    USING charge
    WHERE outbox.id = charge.job_id
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, reason)
    SELECT id, version, 'canceled', 'merchant', 'nothing was executed'
    FROM charge
),
published AS (
    INSERT INTO events (merchant_id, type, charge_id, object_id, version, snapshot)
    SELECT
        merchant_id, 'charge.failed', id, id, version,
        jsonb_strip_nulls(jsonb_build_object(
            'stage', stage, 'money', money, 'attempts', attempts, 'provider_charge_id', provider_charge_id
        ))
    FROM charge
    RETURNING merchant_id, position, id, type
),
deliveries AS (
    INSERT INTO webhook_deliveries (endpoint_id, merchant_id, event_position, event_id)
    SELECT webhook_endpoints.id, published.merchant_id, published.position, published.id
    FROM published
    JOIN webhook_endpoints
        ON webhook_endpoints.merchant_id = published.merchant_id
        AND webhook_endpoints.enabled
        AND (webhook_endpoints.events = '{}' OR published.type = ANY(webhook_endpoints.events))
)
SELECT id
FROM charge
