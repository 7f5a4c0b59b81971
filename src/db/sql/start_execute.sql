WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::integer[], $5::text[], $6::text[], $7::boolean[])
        AS input (charge_id, outbox_id, lease_token, version, provider_charge_id, provider_account, executes)
),
started AS (
    UPDATE charges
    SET stage = 'processing',
        money = 'unknown',
        version = charges.version + 1,
        attempts = charges.attempts + input.executes::integer,
        provider_charge_id = input.provider_charge_id,
        provider_account = input.provider_account,
        next_action = NULL,
        updated_at = now()
    FROM input
    JOIN outbox
        ON outbox.id = input.outbox_id
        AND outbox.lease_token = input.lease_token
        AND outbox.lease_until > now()
    WHERE charges.id = input.charge_id
        -- The version fences what the lease alone can't: a row that was claimed anew while this statement waited.
        AND charges.version = input.version
        AND charges.stage IN ('pending', 'processing', 'requires_action', 'requires_reconciliation')
        AND (
            charges.provider_charge_id IS NULL
            -- Whoever made it elsewhere: what names its account is executed there and nowhere else.
            AND COALESCE(charges.provider_account = input.provider_account, true)
            OR (charges.provider_charge_id, charges.provider_account)
                = (input.provider_charge_id, input.provider_account)
        )
        -- Another object with our stamp is dealt with first: it could be executed by who stored it once.
        AND NOT EXISTS (
            SELECT
            FROM stray_objects
            WHERE stray_objects.charge_id = charges.id
                AND stray_objects.settled_at IS NULL
                AND stray_objects.provider_charge_id <> input.provider_charge_id
        )
        AND (NOT input.executes OR NOT EXISTS (SELECT FROM pauses))
    RETURNING charges.id, charges.version, charges.attempts, charges.provider_charge_id, input.executes
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, detail)
    SELECT
        id, version, CASE WHEN executes THEN 'execute_started' ELSE 'object_adopted' END, 'worker',
        jsonb_build_object('attempt', attempts, 'provider_charge_id', provider_charge_id)
    FROM started
)
SELECT id AS "charge_id!", true AS "started!"
FROM started
UNION ALL
SELECT charge_id, false
FROM input
WHERE executes
    AND EXISTS (SELECT FROM pauses)
