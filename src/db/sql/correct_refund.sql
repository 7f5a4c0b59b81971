-- A fact, written whoever learned it: no lease is asked for.
WITH corrected AS (
    UPDATE refunds
    SET stage = $2,
        money = CASE $2 WHEN 'succeeded' THEN 'moved' ELSE 'not_moved' END,
        version = refunds.version + 1,
        provider_refund_id = COALESCE(refunds.provider_refund_id, $3),
        failure = $4::text::jsonb,
        recheck_at = CASE $2 WHEN 'succeeded' THEN now() + $6::interval END,
        updated_at = now()
    WHERE refunds.id = $1
        AND CASE $2 WHEN 'succeeded' THEN refunds.stage IN ('failed', 'canceled') ELSE refunds.stage = 'succeeded' END
        AND (refunds.provider_refund_id IS NULL OR refunds.provider_refund_id = $3)
    RETURNING
        refunds.id, refunds.charge_id, refunds.merchant_id, refunds.idempotency_key, refunds.amount, refunds.stage,
        refunds.provider_refund_id, refunds.version, refunds.attempts, refunds.failure
),
charge AS (
    UPDATE charges
    SET amount_refunded = charges.amount_refunded
            + CASE corrected.stage WHEN 'succeeded' THEN corrected.amount ELSE -corrected.amount END,
        version = charges.version + 1,
        updated_at = now()
    FROM corrected
    WHERE charges.id = corrected.charge_id
    RETURNING charges.id, charges.version
),
requests AS (
    UPDATE idempotent_requests
    SET status = CASE corrected.stage WHEN 'succeeded' THEN 'completed' ELSE 'failed' END,
        updated_at = now()
    FROM corrected
    WHERE idempotent_requests.merchant_id = corrected.merchant_id
        AND idempotent_requests.operation = 'refund'
        AND idempotent_requests.client_key = corrected.idempotency_key
),
jobs AS (
    DELETE FROM outbox
    USING corrected
    WHERE outbox.refund_id = corrected.id
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, detail)
    SELECT charge.id, charge.version, 'refund_corrected', 'worker', $5::text::jsonb
    FROM corrected
    JOIN charge ON charge.id = corrected.charge_id
),
-- What it was made for is open again.
reopened AS (
    UPDATE discrepancies
    SET resolved_at = CASE corrected.stage WHEN 'succeeded' THEN now() END,
        resolution = CASE corrected.stage WHEN 'succeeded' THEN 'refunded: ' || corrected.provider_refund_id END
    FROM corrected
    WHERE discrepancies.refund_id = corrected.id
),
published AS (
    INSERT INTO events (merchant_id, type, charge_id, object_id, version, snapshot)
    SELECT
        merchant_id, 'refund.corrected', charge_id, id, version,
        jsonb_strip_nulls(jsonb_build_object(
            'stage', stage, 'attempts', attempts, 'provider_refund_id', provider_refund_id, 'failure', failure
        ))
    FROM corrected
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
FROM corrected
