WITH started AS (
    UPDATE refunds
    SET stage = 'processing',
        money = 'unknown',
        version = refunds.version + 1 + $6::boolean::integer,
        attempts = CASE WHEN $6 THEN 1 ELSE refunds.attempts + 1 END,
        key_number = refunds.key_number + $6::integer,
        first_attempted_at = CASE WHEN $6 THEN now() ELSE COALESCE(refunds.first_attempted_at, now()) END,
        updated_at = now()
    FROM outbox
    WHERE refunds.id = $1
        AND refunds.version = $4
        AND refunds.stage IN ('pending', 'processing', 'requires_action', 'requires_reconciliation')
        -- What the provider has made is never asked for again.
        AND refunds.provider_refund_id IS NULL
        -- Nothing is sent that the provider may have forgotten the key of.
        AND ($6 OR refunds.attempts = 0 OR refunds.first_attempted_at > now() - $5::interval)
        AND outbox.id = $2
        AND outbox.lease_token = $3
        AND outbox.lease_until > now()
        AND NOT EXISTS (SELECT FROM pauses)
    RETURNING refunds.id, refunds.charge_id, refunds.attempts, refunds.key_number
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
    SELECT
        charges.id, charges.version, 'refund_started', 'worker',
        CASE WHEN $6 THEN 'an error is replayed under the last key and no refund was made' END,
        jsonb_build_object('refund_id', $7::text, 'attempt', started.attempts, 'key_number', started.key_number)
    FROM started
    JOIN charges ON charges.id = started.charge_id
)
SELECT
    EXISTS (SELECT FROM started) AS "started!",
    EXISTS (SELECT FROM pauses) AS "paused!"
