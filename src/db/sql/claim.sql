-- Of two ways one is taken: the oldest that are due, of the default account and of each other one as many as it may have
-- now, or, where $6 names merchants, a share for each in their order, all of one account.
WITH oldest AS MATERIALIZED (
    SELECT id
    FROM outbox
    WHERE $6::uuid[] IS NULL
        AND state = 'ready'
        AND run_at <= now()
        -- Jobs of other accounts stand between these: what was seen before is not walked each time.
        AND run_at >= COALESCE(now() - $12::interval, '-infinity')
        AND (provider_account IS NULL OR provider_account = $5)
        AND (kind = 'charge' AND payload_version = ANY($4) OR kind = 'refund' AND payload_version = ANY($8))
        -- In the claim itself: no process takes a job once a pause is committed.
        AND NOT EXISTS (SELECT FROM pauses)
    ORDER BY run_at, id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
of_accounts AS MATERIALIZED (
    SELECT of_account.id
    FROM unnest($9::text[], $10::bigint[]) AS accounts (name, most)
    CROSS JOIN LATERAL (
        SELECT id
        FROM outbox
        -- As outbox_account_ready_idx says it, and no other index.
        WHERE state NOT IN ('leased', 'parked')
            AND provider_account = accounts.name
            AND run_at <= now()
            AND (kind = 'charge' AND payload_version = ANY($4) OR kind = 'refund' AND payload_version = ANY($8))
            AND NOT EXISTS (SELECT FROM pauses)
        ORDER BY run_at, id
        LIMIT accounts.most
        FOR UPDATE SKIP LOCKED
    ) AS of_account
),
shares AS MATERIALIZED (
    SELECT of_merchant.id
    FROM unnest($6::uuid[]) AS merchants (merchant_id)
    CROSS JOIN LATERAL (
        SELECT id
        FROM outbox
        WHERE state = 'ready'
            AND merchant_id = merchants.merchant_id
            AND run_at <= now()
            -- What a merchant has elsewhere, having been moved, is left to the oldest.
            AND COALESCE(provider_account, $5) = $11
            AND (kind = 'charge' AND payload_version = ANY($4) OR kind = 'refund' AND payload_version = ANY($8))
            AND NOT EXISTS (SELECT FROM pauses)
        ORDER BY run_at
        LIMIT $7
        FOR UPDATE SKIP LOCKED
    ) AS of_merchant
    LIMIT $1
),
due AS (
    SELECT id FROM oldest
    UNION ALL
    SELECT id FROM of_accounts
    UNION ALL
    SELECT id FROM shares
),
leased AS (
    UPDATE outbox
    SET state = 'leased',
        attempt = outbox.attempt + 1,
        lease_token = $2,
        lease_until = now() + $3
    -- A look-up of each by its id, however many rows the planner expects.
    WHERE outbox.id = ANY(ARRAY(SELECT id FROM due))
    RETURNING
        outbox.id, outbox.charge_id, outbox.refund_id, outbox.attempt, outbox.payload, outbox.run_at, outbox.look_from, outbox.look_asked_at,
        outbox.provider_account
)
SELECT
    leased.id AS "outbox_id!", leased.attempt AS "attempt!", leased.payload AS "payload!", leased.run_at AS "run_at!",
    COALESCE(leased.provider_account, $5) AS "queue!",
    charges.id AS "charge_id!", charges.stage AS "stage!", charges.money AS "money!", charges.version AS "version!",
    charges.attempts AS "attempts!", charges.prepares AS "prepares!",
    charges.provider_account, charges.provider_charge_id, charges.failure,
    charges.next_action, charges.created_at AS "created_at!",
    charges.cancel_requested_at IS NOT NULL AS "cancel_requested!", now() AS "claimed_at!",
    leased.look_asked_at,
    CASE WHEN leased.look_from IS NOT NULL THEN (
        SELECT max(sweeps.began_at)
        FROM sweeps
        WHERE sweeps.provider_account = COALESCE(charges.provider_account, $5)
            AND sweeps.finished_at IS NOT NULL
            AND sweeps.from_at <= leased.look_from
    ) END AS swept_at,
    (
        SELECT jsonb_object_agg(stray_objects.provider_charge_id, stray_objects.provider_account)
        FROM stray_objects
        WHERE stray_objects.charge_id = charges.id
            AND stray_objects.settled_at IS NULL
            AND stray_objects.provider_charge_id IS DISTINCT FROM charges.provider_charge_id
    ) AS strays,
    refunds.id AS "refund_id?", refunds.stage AS "refund_stage?", refunds.version AS "refund_version?",
    refunds.attempts AS "refund_attempts?", refunds.key_number AS "refund_key_number?",
    refunds.first_attempted_at AS "refund_first_attempted_at?", refunds.provider_refund_id AS "provider_refund_id?",
    refunds.provider_account AS "refund_account?", refunds.failure AS "refund_failure?"
FROM leased
-- The limits keep these look-ups of each by its id. As a join, a plan that was made while the table was empty reads all of it
-- for each job, and goes on to as it grows.
CROSS JOIN LATERAL (SELECT * FROM charges WHERE charges.id = leased.charge_id LIMIT 1) AS charges
LEFT JOIN LATERAL (SELECT * FROM refunds WHERE refunds.id = leased.refund_id LIMIT 1) AS refunds ON true
