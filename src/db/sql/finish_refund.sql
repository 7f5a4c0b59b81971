-- The refund is locked first, with every guard: what follows changes its charge exactly once.
WITH finished AS (
    UPDATE refunds
    SET stage = $5,
        money = CASE $5 WHEN 'succeeded' THEN 'moved' ELSE 'not_moved' END,
        version = refunds.version + 1,
        provider_refund_id = COALESCE(refunds.provider_refund_id, $6),
        failure = $7::text::jsonb,
        recheck_at = CASE $5 WHEN 'succeeded' THEN
            -- News came while it was read: of a refund, success is not the last word.
            CASE WHEN refunds.recheck_at <= now() THEN refunds.recheck_at ELSE now() + $9::interval END
        END,
        updated_at = now(),
        finished_at = now()
    WHERE refunds.id = $1
        AND refunds.stage IN ('pending', 'processing', 'requires_action', 'requires_reconciliation')
        AND CASE $5
            WHEN 'succeeded' THEN
                refunds.provider_refund_id IS NULL
                OR refunds.provider_refund_id = $6
            ELSE
                refunds.version = $4
                AND EXISTS (
                    SELECT
                    FROM outbox
                    WHERE outbox.id = $2
                        AND outbox.lease_token = $3
                        AND outbox.lease_until > now()
                )
        END
    RETURNING
        refunds.id, refunds.charge_id, refunds.merchant_id, refunds.idempotency_key, refunds.amount, refunds.stage,
        refunds.provider, refunds.provider_refund_id, refunds.version, refunds.attempts, refunds.failure
),
-- Its own rows were lost once, and a sweep counted it among those made outside.
counted AS (
    DELETE FROM external_refunds
    USING finished
    WHERE external_refunds.provider = finished.provider
        AND external_refunds.provider_refund_id = finished.provider_refund_id
    RETURNING
        external_refunds.provider, external_refunds.provider_refund_id,
        CASE WHEN external_refunds.counted THEN external_refunds.amount ELSE 0 END AS amount
),
known AS (
    UPDATE discrepancies
    SET resolved_at = now(),
        resolution = 'worker: its refund is in the books now'
    FROM counted
    WHERE discrepancies.provider = counted.provider
        AND discrepancies.provider_charge_id = counted.provider_refund_id
        AND discrepancies.kind = 'refund_unknown'
        AND discrepancies.resolved_at IS NULL
),
charge AS (
    UPDATE charges
    SET amount_refunding = charges.amount_refunding - finished.amount,
        amount_refunded = charges.amount_refunded
            + CASE finished.stage WHEN 'succeeded' THEN finished.amount ELSE 0 END
            - COALESCE((SELECT sum(amount) FROM counted), 0)::bigint,
        version = charges.version + (finished.stage = 'succeeded')::integer,
        updated_at = CASE finished.stage WHEN 'succeeded' THEN now() ELSE charges.updated_at END
    FROM finished
    WHERE charges.id = finished.charge_id
    RETURNING charges.id, charges.version
),
requests AS (
    UPDATE idempotent_requests
    SET status = CASE finished.stage WHEN 'succeeded' THEN 'completed' ELSE 'failed' END,
        updated_at = now()
    FROM finished
    WHERE idempotent_requests.merchant_id = finished.merchant_id
        AND idempotent_requests.operation = 'refund'
        AND idempotent_requests.client_key = finished.idempotency_key
),
jobs AS (
    DELETE FROM outbox
    USING finished
    WHERE outbox.refund_id = finished.id
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, detail)
    SELECT
        charge.id, charge.version, CASE finished.stage WHEN 'succeeded' THEN 'refund_completed' ELSE 'refund_failed' END,
        'worker', $8::text::jsonb
    FROM finished
    JOIN charge ON charge.id = finished.charge_id
),
-- What it was made for.
resolved AS (
    UPDATE discrepancies
    SET resolved_at = now(),
        resolution = 'refunded: ' || finished.provider_refund_id
    FROM finished
    WHERE discrepancies.refund_id = finished.id
        AND finished.stage = 'succeeded'
        AND discrepancies.resolved_at IS NULL
),
published AS (
    INSERT INTO events (merchant_id, type, charge_id, object_id, version, snapshot)
    SELECT
        merchant_id, 'refund.' || CASE stage WHEN 'succeeded' THEN 'completed' ELSE 'failed' END, charge_id, id, version,
        jsonb_strip_nulls(jsonb_build_object(
            'stage', stage, 'attempts', attempts, 'provider_refund_id', provider_refund_id, 'failure', failure
        ))
    FROM finished
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
FROM finished
