-- Refunds before outbox rows: one order of locks for all.
WITH changed AS (
    UPDATE refunds
    SET stage = $6,
        money = $7,
        version = $8,
        provider_refund_id = COALESCE(refunds.provider_refund_id, $9),
        attempts = $10,
        first_attempted_at = CASE WHEN $10 = 0 THEN NULL ELSE refunds.first_attempted_at END,
        updated_at = now()
    FROM outbox
    WHERE refunds.id = $1
        AND $5::boolean
        AND refunds.version = $4
        AND refunds.stage IN ('pending', 'processing', 'requires_action', 'requires_reconciliation')
        AND outbox.id = $2
        AND outbox.lease_token = $3
    RETURNING refunds.id, refunds.charge_id, refunds.stage
),
job AS (
    UPDATE outbox
    SET state = CASE WHEN $12::boolean THEN 'parked' ELSE 'ready' END,
        lease_token = NULL,
        lease_until = NULL,
        -- Read of the row as it is locked: a nudge that came since the claim is not lost.
        run_at = now() + CASE WHEN outbox.nudged THEN interval '0' ELSE $11::interval END,
        nudged = false,
        last_error = $13,
        last_call = COALESCE($14::text::jsonb || jsonb_build_object('at', now()), outbox.last_call),
        unclear_since = CASE
            WHEN NOT $5 THEN outbox.unclear_since
            WHEN $6 = 'requires_reconciliation' THEN COALESCE(outbox.unclear_since, now())
        END
    WHERE outbox.id = $2
        AND outbox.lease_token = $3
        AND (NOT $5 OR EXISTS (SELECT FROM changed))
    RETURNING outbox.id
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
    SELECT
        charges.id, charges.version, 'refund_' || changed.stage, 'worker', $13,
        jsonb_build_object('refund_id', $15::text)
    FROM changed
    JOIN charges ON charges.id = changed.charge_id
)
SELECT id
FROM job
