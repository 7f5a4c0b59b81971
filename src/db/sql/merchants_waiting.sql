WITH RECURSIVE visited AS (
    (
        SELECT merchant_id, 1 AS number
        FROM outbox
        WHERE state = 'ready'
            AND merchant_id > $1
        ORDER BY merchant_id, run_at
        LIMIT 1
    )
    UNION ALL
    SELECT next.merchant_id, visited.number + 1
    FROM visited
    CROSS JOIN LATERAL (
        SELECT merchant_id
        FROM outbox
        WHERE state = 'ready'
            AND merchant_id > visited.merchant_id
        ORDER BY merchant_id, run_at
        LIMIT 1
    ) AS next
    WHERE visited.number < $2
)
SELECT
    visited.merchant_id AS "merchant!",
    -- Those of other accounts have their turns in the claims of these. One that was moved has what it had begun elsewhere:
    -- it has its turn where it is, and where its oldest is.
    oldest.id IS NOT NULL
        AND $4 IN (COALESCE(merchants.provider_account, $3), COALESCE(oldest.provider_account, $3)) AS "due!"
FROM visited
LEFT JOIN merchants ON merchants.id = visited.merchant_id
LEFT JOIN LATERAL (
    SELECT id, provider_account
    FROM outbox
    WHERE state = 'ready'
        AND merchant_id = visited.merchant_id
        AND run_at <= now()
    ORDER BY run_at
    LIMIT 1
) AS oldest ON true
ORDER BY visited.merchant_id
