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
        AND outbox.state = 'leased'
    WHERE charges.id = input.charge_id
        AND input.changes
        AND charges.version = input.version
        AND charges.stage IN ('pending', 'processing', 'requires_action', 'requires_reconciliation')
    RETURNING charges.id, charges.version, charges.stage, input.error
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
        AND outbox.state = 'leased'
        AND (NOT input.changes OR input.charge_id IN (SELECT id FROM changed))
    RETURNING outbox.id
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, reason)
    SELECT id, version, stage, 'worker', error
    FROM changed
)
SELECT id
FROM jobs
