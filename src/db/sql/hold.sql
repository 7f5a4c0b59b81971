WITH job AS MATERIALIZED (
    SELECT id, state
    FROM outbox
    WHERE charge_id = $1
        AND kind = 'charge'
        AND state IN ('parked', 'ready')
    ORDER BY id
    LIMIT 1
    FOR UPDATE
),
leased AS (
    UPDATE outbox
    SET state = 'leased',
        lease_token = $2,
        lease_until = now() + $3
    FROM job
    WHERE outbox.id = job.id
    RETURNING
        outbox.id, outbox.charge_id, outbox.attempt, outbox.payload_version, outbox.payload,
        outbox.look_from, outbox.look_asked_at, job.state AS was
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
    SELECT charges.id, charges.version, 'resolve_asked', 'operator', $4, $5
    FROM leased
    JOIN charges ON charges.id = leased.charge_id
)
SELECT
    leased.id AS "outbox_id!", leased.attempt AS "attempt!", leased.payload_version AS "payload_version!",
    leased.payload AS "payload!", leased.was AS "was!",
    charges.cancel_requested_at IS NOT NULL AS "cancel_requested!", now() AS "claimed_at!",
    leased.look_asked_at, charges.provider_account AS account,
    CASE WHEN leased.look_from IS NOT NULL THEN (
        SELECT max(sweeps.began_at)
        FROM sweeps
        WHERE sweeps.provider_account = COALESCE(charges.provider_account, $6)
            AND sweeps.finished_at IS NOT NULL
            AND sweeps.from_at <= leased.look_from
    ) END AS swept_at,
    (
        SELECT jsonb_object_agg(stray_objects.provider_charge_id, stray_objects.provider_account)
        FROM stray_objects
        WHERE stray_objects.charge_id = charges.id
            AND stray_objects.settled_at IS NULL
            AND stray_objects.provider_charge_id IS DISTINCT FROM charges.provider_charge_id
    ) AS strays
FROM leased
JOIN charges ON charges.id = leased.charge_id
