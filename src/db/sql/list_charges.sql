-- One of the walks finds the page, $2 says which; the gates of the others are false before anything is read. Each walk
-- is cut at 101, the largest page and one more, as a literal: of a parameter the planner would expect a tenth of the
-- table, and scan it.
WITH of_key AS MATERIALIZED (
    SELECT id, created_at
    FROM charges
    WHERE $2 = 'key'
        AND id = $11
),
of_object AS MATERIALIZED (
    SELECT charges.id, charges.created_at
    FROM charge_objects
    CROSS JOIN LATERAL (SELECT id, created_at FROM charges WHERE charges.id = charge_objects.charge_id LIMIT 1) AS charges
    WHERE $2 = 'object'
        AND charge_objects.provider = $9
        AND charge_objects.provider_charge_id = $10
),
of_reference AS MATERIALIZED (
    SELECT id, created_at
    FROM charges
    WHERE $2 = 'reference'
        AND merchant_id = $1
        AND reference = $8
        AND stage = ANY($3)
        AND created_at >= $4
        AND (created_at, id) < ($5, $6)
    ORDER BY created_at DESC, id DESC
    LIMIT 101
),
newest AS MATERIALIZED (
    SELECT id, created_at
    FROM charges
    WHERE $2 = 'newest'
        AND merchant_id = $1
        AND stage = ANY($3)
        AND created_at >= $4
        AND (created_at, id) < ($5, $6)
    ORDER BY created_at DESC, id DESC
    LIMIT 101
),
-- Few charges pass through these stages, and their index is theirs alone.
rare AS MATERIALIZED (
    SELECT of_stage.id, of_stage.created_at
    FROM unnest($3::text[]) AS wanted (stage)
    CROSS JOIN LATERAL (
        SELECT id, created_at
        FROM charges
        WHERE $2 = 'stages'
            AND merchant_id = $1
            AND rare_stage = wanted.stage
            AND created_at >= $4
            AND (created_at, id) < ($5, $6)
        ORDER BY created_at DESC, id DESC
        LIMIT 101
    ) AS of_stage
),
-- Every charge passes through the other open stages: an index of them would end HOT updates. Where many charges are
-- open, the newest are.
recent AS MATERIALIZED (
    SELECT id, created_at
    FROM (
        SELECT id, created_at, stage
        FROM charges
        WHERE $2 = 'stages'
            AND $3 && ARRAY['pending', 'processing']
            AND merchant_id = $1
            AND created_at >= $4
            AND (created_at, id) < ($5, $6)
        ORDER BY created_at DESC, id DESC
        LIMIT 2000
    ) AS looked_at
    WHERE stage = ANY($3)
    ORDER BY created_at DESC, id DESC
    LIMIT 101
),
-- Where few are, so are the jobs, one for each: those of the merchant, and those whose merchant is not known, written by an
-- earlier release. Left alone if the walk before has seen everything.
open AS MATERIALIZED (
    SELECT of_job.id, of_job.created_at
    FROM (
        SELECT charge_id FROM outbox WHERE state = 'ready' AND kind = 'charge' AND merchant_id = $1
        UNION ALL
        SELECT charge_id FROM outbox WHERE state = 'ready' AND kind = 'charge' AND merchant_id IS NULL
        UNION ALL
        SELECT charge_id FROM outbox
        WHERE state = 'leased' AND kind = 'charge' AND (merchant_id = $1 OR merchant_id IS NULL)
        UNION ALL
        SELECT charge_id FROM outbox
        WHERE state = 'parked' AND kind = 'charge' AND (merchant_id = $1 OR merchant_id IS NULL)
    ) AS jobs
    -- The limit keeps this a look-up for each job, however many the planner believes there are.
    CROSS JOIN LATERAL (
        SELECT id, created_at
        FROM charges
        WHERE id = jobs.charge_id
            AND merchant_id = $1
            AND stage = ANY($3)
            AND created_at >= $4
            AND (created_at, id) < ($5, $6)
        LIMIT 1
    ) AS of_job
    WHERE $2 = 'stages'
        AND $3 && ARRAY['pending', 'processing']
        AND (SELECT count(*) FROM recent) < $7
        AND EXISTS (
            SELECT
            FROM charges
            WHERE merchant_id = $1
                AND created_at >= $4
                AND (created_at, id) < ($5, $6)
            ORDER BY created_at DESC, id DESC
            OFFSET 2000
        )
    ORDER BY of_job.created_at DESC, of_job.id DESC
    LIMIT 101
),
page AS (
    SELECT id FROM (
        SELECT id, created_at FROM of_key
        UNION SELECT id, created_at FROM of_object
        UNION SELECT id, created_at FROM of_reference
        UNION SELECT id, created_at FROM newest
        UNION SELECT id, created_at FROM rare
        UNION SELECT id, created_at FROM recent
        UNION SELECT id, created_at FROM open
    ) AS found
    ORDER BY created_at DESC, id DESC
    LIMIT $7
)
SELECT
    id, merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency, payment_method,
    customer, return_url, off_session, reference, description,
    metadata, live, provider, stage, money, version, attempts,
    prepares, provider_account, provider_charge_id, failure,
    next_action, created_at, updated_at, finished_at, amount_refunded,
    cancel_requested_at IS NOT NULL AS "cancel_requested!"
FROM charges
WHERE id IN (SELECT id FROM page)
    -- Every filter once more, for those that the walk did not look at.
    AND merchant_id = $1
    AND stage = ANY($3)
    AND created_at >= $4
    AND (created_at, id) < ($5, $6)
    AND ($8::text IS NULL OR reference = $8)
    AND ($10::text IS NULL OR (provider = $9 AND provider_charge_id = $10))
    AND ($11::uuid IS NULL OR id = $11)
ORDER BY created_at DESC, id DESC
