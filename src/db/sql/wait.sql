WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::uuid[], $2::bigint[], $3::uuid[], $4::integer[], $5::boolean[], $6::text[], $7::text[], $8::text[],
        $9::integer[], $10::integer[], $11::interval[], $12::boolean[], $13::text[], $14::timestamptz[],
        $15::text[]
    ) AS input (
        charge_id, outbox_id, lease_token, version, changes, stage, money, next_action, attempts, prepares,
        delay, parked, error, look_from, call
    )
),
-- Charges before outbox rows: one order of locks for all.
changed AS (
    UPDATE charges
    SET stage = input.stage,
        money = input.money,
        version = charges.version + 1,
        next_action = input.next_action::jsonb,
        attempts = input.attempts,
        prepares = input.prepares,
        updated_at = now()
    FROM input
    JOIN outbox
        ON outbox.id = input.outbox_id
        AND outbox.lease_token = input.lease_token
    -- As the charge is before this statement: the guarded version is the same one.
    JOIN charges AS before
        ON before.id = input.charge_id
        AND before.version = input.version
    WHERE charges.id = input.charge_id
        AND input.changes
        AND charges.version = input.version
        AND charges.stage IN ('pending', 'processing', 'requires_action', 'requires_reconciliation')
    RETURNING
        charges.id, charges.version, charges.stage, input.error, charges.merchant_id, charges.money, charges.attempts,
        charges.provider_charge_id, charges.next_action,
        charges.stage = 'requires_action' AND charges.next_action IS DISTINCT FROM before.next_action AS asks
),
jobs AS (
    UPDATE outbox
    SET state = CASE WHEN input.parked THEN 'parked' ELSE 'ready' END,
        lease_token = NULL,
        lease_until = NULL,
        -- Read of the row as it is locked: a nudge that came since the claim is not lost.
        run_at = now() + CASE WHEN outbox.nudged THEN interval '0' ELSE input.delay END,
        nudged = false,
        last_error = input.error,
        last_call = COALESCE(input.call::jsonb || jsonb_build_object('at', now()), outbox.last_call),
        look_from = COALESCE(input.look_from, outbox.look_from),
        look_asked_at = CASE WHEN input.look_from IS NULL THEN outbox.look_asked_at ELSE now() END,
        unclear_since = CASE
            WHEN NOT input.changes THEN outbox.unclear_since
            WHEN input.stage = 'requires_reconciliation' THEN COALESCE(outbox.unclear_since, now())
        END
    FROM input
    WHERE outbox.id = input.outbox_id
        AND outbox.lease_token = input.lease_token
        AND (NOT input.changes OR input.charge_id IN (SELECT id FROM changed))
    RETURNING outbox.id
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, reason)
    SELECT id, version, stage, 'worker', error
    FROM changed
),
published AS (
    INSERT INTO events (merchant_id, type, charge_id, object_id, version, snapshot)
    SELECT
        merchant_id, 'charge.requires_action', id, id, version,
        jsonb_strip_nulls(jsonb_build_object(
            'stage', stage, 'money', money, 'attempts', attempts, 'provider_charge_id', provider_charge_id,
            'next_action', next_action
        ))
    FROM changed
    -- Also when the customer is asked for something else than before.
    WHERE asks
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
FROM jobs
