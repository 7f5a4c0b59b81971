SELECT
    (
        SELECT count(*)
        -- Ordered, so that Postgres walks the index and not the table.
        FROM (SELECT FROM outbox WHERE state = 'ready' AND run_at <= now() ORDER BY run_at LIMIT $1) AS bounded
    ) AS "ready!",
    (
        SELECT count(*)
        FROM (SELECT FROM outbox WHERE state = 'ready' AND run_at > now() ORDER BY run_at LIMIT $1) AS bounded
    ) AS "later!",
    (
        SELECT count(*)
        FROM (SELECT FROM outbox WHERE state = 'leased' ORDER BY lease_until LIMIT $1) AS bounded
    ) AS "leased!",
    (
        SELECT count(*)
        FROM (SELECT FROM outbox WHERE state = 'parked' ORDER BY id LIMIT $1) AS bounded
    ) AS "parked!",
    (
        SELECT count(*)
        FROM (SELECT FROM outbox WHERE unclear_since IS NOT NULL ORDER BY unclear_since LIMIT $1) AS bounded
    ) AS "unclear!",
    (
        SELECT count(*)
        FROM (SELECT FROM discrepancies WHERE resolved_at IS NULL ORDER BY found_at LIMIT $1) AS bounded
    ) AS "discrepancies!",
    (
        SELECT extract(epoch FROM now() - min(run_at))::double precision
        FROM outbox
        WHERE state = 'ready'
    ) AS ready_age,
    (
        SELECT extract(epoch FROM now() + $2::interval - min(lease_until))::double precision
        FROM outbox
        WHERE state = 'leased'
    ) AS leased_age,
    (
        SELECT extract(epoch FROM now() - min(run_at))::double precision
        FROM (SELECT run_at FROM outbox WHERE state = 'parked' ORDER BY id LIMIT $1) AS bounded
    ) AS parked_age,
    (
        SELECT extract(epoch FROM now() - min(unclear_since))::double precision
        FROM outbox
        WHERE unclear_since IS NOT NULL
    ) AS unclear_age,
    -- Of the account whose sweep is furthest behind, and from when the first was asked for until one is finished.
    (
        SELECT extract(epoch FROM now() - min(swept_at))::double precision
        FROM (
            SELECT COALESCE(max(began_at) FILTER (WHERE finished_at IS NOT NULL), min(asked_at)) AS swept_at
            FROM sweeps
            WHERE provider_account = ANY($3)
            GROUP BY provider_account
        ) AS accounts
    ) AS sweep_age,
    EXISTS (SELECT FROM pauses WHERE kind = 'operator') AS "paused_by_operator!",
    EXISTS (SELECT FROM pauses WHERE kind = 'recovery') AS "paused_by_recovery!"
