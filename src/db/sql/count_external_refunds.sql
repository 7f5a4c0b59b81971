WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest($2::text[], $3::uuid[], $4::bigint[], $5::text[], $6::boolean[], $7::uuid[])
        AS input (provider_refund_id, charge_id, amount, status, counted, refund_id)
),
written AS (
    INSERT INTO external_refunds (provider, provider_refund_id, charge_id, amount, status, counted, refund_id)
    SELECT $1, provider_refund_id, charge_id, amount, status, counted, refund_id
    FROM input
    -- What is ours is counted by its own refund; a second one with the same stamp by nobody else.
    WHERE NOT EXISTS (
            SELECT
            FROM refunds
            WHERE refunds.id = input.refund_id
                AND COALESCE(refunds.provider_refund_id, input.provider_refund_id) = input.provider_refund_id
        )
        AND NOT EXISTS (
            SELECT
            FROM refunds
            WHERE refunds.provider = $1
                AND refunds.provider_refund_id = input.provider_refund_id
        )
        AND (
            input.counted
            OR EXISTS (
                SELECT
                FROM external_refunds
                WHERE external_refunds.provider = $1
                    AND external_refunds.provider_refund_id = input.provider_refund_id
            )
        )
    ORDER BY provider_refund_id
    ON CONFLICT ON CONSTRAINT external_refunds_pkey DO UPDATE
    SET status = excluded.status,
        counted = excluded.counted,
        updated_at = now()
    -- A row that is new and one that changes its side are returned; one that says the same is not.
    WHERE external_refunds.counted <> excluded.counted
    RETURNING provider_refund_id, charge_id, amount, status, counted, refund_id
),
sums AS (
    SELECT charge_id, sum(CASE WHEN counted THEN amount ELSE -amount END)::bigint AS amount
    FROM written
    GROUP BY charge_id
),
charge AS (
    UPDATE charges
    SET amount_refunded = charges.amount_refunded + sums.amount,
        version = charges.version + 1,
        updated_at = now()
    FROM sums
    WHERE charges.id = sums.charge_id
    RETURNING
        charges.id, charges.merchant_id, charges.version, charges.stage, charges.money, charges.attempts,
        charges.provider_charge_id, charges.failure, charges.amount_refunded, charges.finished_at
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
    SELECT
        charge.id, charge.version,
        CASE WHEN written.counted THEN 'refunded_externally' ELSE 'external_refund_failed' END, 'reconciler',
        written.status,
        jsonb_build_object('provider_refund_id', written.provider_refund_id, 'amount', written.amount)
    FROM written
    JOIN charge ON charge.id = written.charge_id
),
-- Who asked for no refund here hears of it all the same.
published AS (
    INSERT INTO events (merchant_id, type, charge_id, object_id, version, snapshot)
    SELECT
        merchant_id, 'charge.corrected', id, id, version,
        jsonb_strip_nulls(jsonb_build_object(
            'stage', stage, 'money', money, 'attempts', attempts, 'provider_charge_id', provider_charge_id,
            'failure', failure, 'amount_refunded', NULLIF(amount_refunded, 0)
        ))
    FROM charge
    WHERE finished_at IS NOT NULL
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
),
disputed AS (
    INSERT INTO discrepancies (kind, provider, provider_account, provider_charge_id, charge_id, detail)
    SELECT
        -- Of a stamp of ours without a row: lost, or the client was told otherwise.
        CASE WHEN EXISTS (SELECT FROM refunds WHERE refunds.id = written.refund_id) THEN 'second_refund' ELSE 'refund_unknown' END,
        $1, charges.provider_account, written.provider_refund_id, written.charge_id,
        jsonb_build_object('amount', written.amount, 'status', written.status)
    FROM written
    JOIN charges ON charges.id = written.charge_id
    WHERE written.refund_id IS NOT NULL
    ON CONFLICT ON CONSTRAINT discrepancies_once DO NOTHING
)
SELECT provider_refund_id AS "provider_refund_id!", refund_id IS NOT NULL AS "stamped!"
FROM written
