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
SELECT visited.merchant_id AS "merchant!", oldest.id IS NOT NULL AS "due!"
FROM visited
-- Merchants of other accounts have their turns in the claims of those.
LEFT JOIN merchants ON merchants.id = visited.merchant_id
LEFT JOIN LATERAL (
    SELECT id
    FROM outbox
    WHERE state = 'ready'
        AND merchant_id = visited.merchant_id
        AND run_at <= now()
        AND COALESCE(merchants.provider_account, $3) = $4
    ORDER BY run_at
    LIMIT 1
) AS oldest ON true
ORDER BY visited.merchant_id
