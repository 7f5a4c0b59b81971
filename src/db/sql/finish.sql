WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::uuid[], $2::bigint[], $3::uuid[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::text[]
    ) AS input (
        charge_id, outbox_id, lease_token, version, stage, provider_charge_id, provider_account, failure, detail
    )
),
finished AS (
    UPDATE charges
    SET stage = input.stage,
        money = CASE input.stage WHEN 'succeeded' THEN 'moved' ELSE 'not_moved' END,
        version = charges.version + 1,
        provider_charge_id = COALESCE(charges.provider_charge_id, input.provider_charge_id),
        provider_account = COALESCE(charges.provider_account, input.provider_account),
        failure = input.failure::jsonb,
        next_action = NULL,
        updated_at = now(),
        finished_at = now()
    FROM input
    LEFT JOIN outbox
        ON outbox.id = input.outbox_id
        AND outbox.lease_token = input.lease_token
        -- A restore can bring back a token whose holder stalled long ago.
        AND outbox.lease_until > now()
    WHERE charges.id = input.charge_id
        AND charges.stage IN ('pending', 'processing', 'requires_action', 'requires_reconciliation')
        AND CASE input.stage
            WHEN 'succeeded' THEN
                charges.provider_charge_id IS NULL
                OR charges.provider_charge_id = input.provider_charge_id
            ELSE
                outbox.id IS NOT NULL
                AND charges.version = input.version
                -- Another object with our stamp may have moved the money, or still may.
                AND NOT EXISTS (
                    SELECT
                    FROM stray_objects
                    WHERE stray_objects.charge_id = charges.id
                        AND stray_objects.settled_at IS NULL
                        AND stray_objects.provider_charge_id IS DISTINCT FROM charges.provider_charge_id
                )
        END
    RETURNING
        charges.id, charges.merchant_id, charges.idempotency_key, charges.stage, charges.version,
        input.outbox_id, input.detail, charges.money, charges.attempts, charges.provider_charge_id, charges.failure,
        charges.amount_refunded
),
requests AS (
    UPDATE idempotent_requests
    SET status = CASE finished.stage WHEN 'succeeded' THEN 'completed' ELSE 'failed' END,
        updated_at = now()
    FROM finished
    WHERE idempotent_requests.merchant_id = finished.merchant_id
        AND idempotent_requests.operation = 'charge'
        AND idempotent_requests.client_key = finished.idempotency_key
),
jobs AS (
    DELETE FROM outbox
    USING finished
    WHERE outbox.id = finished.outbox_id
        AND outbox.charge_id = finished.id
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, detail)
    SELECT id, version, stage, 'worker', detail::jsonb
    FROM finished
),
published AS (
    INSERT INTO events (merchant_id, type, charge_id, object_id, version, snapshot)
    SELECT
        merchant_id, CASE stage WHEN 'succeeded' THEN 'charge.completed' ELSE 'charge.failed' END, id, id, version,
        jsonb_strip_nulls(jsonb_build_object(
            'stage', stage, 'money', money, 'attempts', attempts, 'provider_charge_id', provider_charge_id,
            'failure', failure, 'amount_refunded', NULLIF(amount_refunded, 0)
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
),
disputed AS (
    INSERT INTO discrepancies (kind, provider, provider_account, provider_charge_id, charge_id, detail)
    SELECT
        CASE charges.stage WHEN 'succeeded' THEN 'second_success' ELSE 'success_after_failed' END,
        charges.provider, COALESCE(input.provider_account, charges.provider_account), input.provider_charge_id, charges.id, input.detail::jsonb
    FROM input
    JOIN charges ON charges.id = input.charge_id
    WHERE input.stage = 'succeeded'
        -- Few are left to be looked at.
        AND (input.charge_id, input.provider_charge_id) NOT IN (SELECT id, provider_charge_id FROM finished)
        AND (
            charges.stage IN ('failed', 'canceled')
            OR charges.provider_charge_id <> input.provider_charge_id
        )
    ON CONFLICT ON CONSTRAINT discrepancies_once DO NOTHING
)
SELECT id
FROM finished
