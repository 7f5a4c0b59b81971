SELECT
    COALESCE(account, $1) AS "name!",
    count(*) FILTER (WHERE what = 'merchant') AS "merchants!",
    count(*) FILTER (WHERE what = 'charge') AS "open_charges!",
    count(*) FILTER (WHERE what = 'charge' AND parked) AS "parked_charges!",
    count(*) FILTER (WHERE what = 'refund' AND open) AS "open_refunds!",
    count(*) FILTER (WHERE what = 'refund' AND parked) AS "parked_refunds!",
    max(swept_at) AS swept_at
FROM (
    SELECT provider_account AS account, 'merchant' AS what, true AS open, false AS parked, NULL::timestamptz AS swept_at
    FROM merchants
    UNION ALL
    -- Of a job that was never claimed the row says what its charge says: of a long backlog no charge is read.
    SELECT provider_account, 'charge', true, state = 'parked', NULL
    FROM outbox
    WHERE kind = 'charge'
        AND (provider_account IS NOT NULL OR attempt = 0)
    UNION ALL
    -- The others of the default account name it once their charges have an object, whatever it was called then.
    SELECT charges.provider_account, 'charge', true, outbox.state = 'parked', NULL
    FROM outbox
    JOIN charges ON charges.id = outbox.charge_id
    WHERE outbox.kind = 'charge'
        AND outbox.provider_account IS NULL
        AND outbox.attempt > 0
    UNION ALL
    SELECT refunds.provider_account, 'refund', refunds.finished_at IS NULL, outbox.state = 'parked', NULL
    FROM outbox
    JOIN refunds ON refunds.id = outbox.refund_id
    UNION ALL
    SELECT provider_account, 'sweep', true, false, max(finished_at)
    FROM sweeps
    WHERE finished_at IS NOT NULL
    GROUP BY provider_account
) AS found
GROUP BY COALESCE(account, $1)
ORDER BY 1
