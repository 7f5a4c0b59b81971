-- Who stores the object comes before whom the stamp names: only what is stored is ever executed.
WITH charge AS MATERIALIZED (
    SELECT charges.id, charges.stage, false AS has_another, true AS stored
    FROM charge_objects
    -- The limit keeps this a look-up by the id, also in a plan that was made while the books were empty.
    CROSS JOIN LATERAL (SELECT id, stage FROM charges WHERE charges.id = charge_objects.charge_id LIMIT 1) AS charges
    WHERE charge_objects.provider = $1
        AND charge_objects.provider_charge_id = $3
    UNION ALL
    SELECT
        id, stage,
        -- It stores another object, or it is to have one in another account than the one that has this.
        CASE
            WHEN provider_charge_id IS NULL THEN COALESCE(provider_account <> $5, NOT $15)
            ELSE provider_charge_id <> $3
        END,
        false
    FROM charges
    WHERE id = $4
        AND provider = $1
    ORDER BY stored DESC
    LIMIT 1
),
-- The same of a refund, where the event is about one.
refund AS MATERIALIZED (
    SELECT id, charge_id, stage, provider_refund_id IS NULL OR provider_refund_id = $13 AS is_it, true AS stored
    FROM refunds
    WHERE provider = $1
        AND provider_refund_id = $13
    UNION ALL
    SELECT id, charge_id, stage, provider_refund_id IS NULL OR provider_refund_id = $13, false
    FROM refunds
    WHERE id = $14
        AND provider = $1
    ORDER BY stored DESC
    LIMIT 1
),
judged AS (
    SELECT
        COALESCE(refund.charge_id, charge.id, $4) AS charge_id,
        refund.id AS refund_id,
        charge.id IS NULL AND $13::text IS NULL AS missing,
        CASE
            WHEN $7 THEN 'other_mode'
            WHEN $13 IS NOT NULL AND refund.is_it AND CASE
                WHEN refund.stage = 'succeeded' THEN $8
                WHEN refund.stage IN ('failed', 'canceled') THEN NOT $8
            END THEN 'nothing_new'
            WHEN $13 IS NOT NULL AND refund.is_it THEN 'nudged'
            WHEN $13 IS NOT NULL AND refund.id IS NULL AND $14::uuid IS NULL AND charge.id IS NULL THEN 'not_ours'
            -- Made outside, or its rows are lost: counted already as it stands, or to be counted.
            WHEN $13 IS NOT NULL AND EXISTS (
                SELECT
                FROM external_refunds
                WHERE external_refunds.provider = $1
                    AND external_refunds.provider_refund_id = $13
                    AND external_refunds.counted = NOT $12
            ) THEN 'nothing_new'
            WHEN $13 IS NOT NULL THEN 'sweep_asked'
            WHEN charge.id IS NULL AND $4::uuid IS NULL THEN 'not_ours'
            WHEN (charge.id IS NULL OR charge.has_another) AND $12 THEN 'nothing_new'
            WHEN charge.id IS NULL OR charge.has_another THEN 'sweep_asked'
            WHEN charge.stage = 'succeeded' THEN 'nothing_new'
            WHEN charge.stage IN ('failed', 'canceled') AND $8 THEN 'sweep_asked'
            WHEN charge.stage IN ('failed', 'canceled') OR $9 THEN 'nothing_new'
            ELSE 'nudged'
        END AS effect
    FROM (SELECT) AS one
    LEFT JOIN charge ON true
    LEFT JOIN refund ON true
),
event AS (
    INSERT INTO provider_events
        (provider, event_id, provider_account, kind, provider_charge_id, charge_id, effect, created_at)
    SELECT $1, $2, $5, $6, $3, charge_id, effect, $10
    FROM judged
    ON CONFLICT DO NOTHING
    RETURNING charge_id, effect
),
-- One that has ended has no job: the reconciler makes it one. And one with a job that may have read it before it failed: of
-- a refund, success is not the last word.
rechecked AS (
    UPDATE refunds
    SET recheck_at = now()
    FROM event
    JOIN judged ON true
    WHERE event.effect = 'nudged'
        AND refunds.id = judged.refund_id
        AND ($12 OR NOT EXISTS (SELECT FROM outbox WHERE outbox.refund_id = refunds.id))
    RETURNING refunds.id
),
-- Also a job that is held: its holder may have read the object before this happened to it. Refunds come before outbox rows:
-- one order of locks for all.
refund_jobs AS (
    UPDATE outbox
    SET run_at = CASE WHEN outbox.state = 'ready' THEN LEAST(outbox.run_at, now()) ELSE outbox.run_at END,
        nudged = true
    FROM event
    JOIN judged ON true
    WHERE event.effect = 'nudged'
        AND (SELECT count(*) FROM rechecked) <= 1
        AND outbox.refund_id = judged.refund_id
        AND outbox.state <> 'parked'
),
jobs AS (
    UPDATE outbox
    SET run_at = CASE WHEN outbox.state = 'ready' THEN LEAST(outbox.run_at, now()) ELSE outbox.run_at END,
        nudged = true
    FROM event
    WHERE event.effect = 'nudged'
        AND $13 IS NULL
        AND outbox.charge_id = event.charge_id
        AND outbox.kind = 'charge'
        AND outbox.state <> 'parked'
),
sweep AS (
    INSERT INTO sweeps (provider, provider_account, reason, from_at)
    SELECT $1, $5, 'event', $11
    FROM event
    WHERE event.effect = 'sweep_asked'
        AND NOT EXISTS (
            SELECT
            FROM sweeps
            WHERE provider_account = $5
                AND finished_at IS NULL
                AND lease_token IS NULL
                AND from_at <= $11
        )
)
SELECT judged.effect AS "effect!", judged.missing AS "missing!", event.effect IS NOT NULL AS "new!"
FROM judged
LEFT JOIN event ON true
