SELECT
    charges.id AS "id!", merchants.name AS "merchant?", charges.idempotency_key AS "idempotency_key!",
    charges.reference, charges.amount AS "amount!", charges.currency AS "currency!", charges.stage AS "stage!",
    charges.money AS "money!", charges.attempts AS "attempts!", charges.provider_account AS account,
    charges.provider_charge_id,
    charges.created_at AS "created_at!", charges.updated_at AS "updated_at!", charges.finished_at,
    outbox.state AS "job_state?", outbox.run_at AS "run_at?", outbox.lease_until, outbox.last_error, outbox.last_call,
    now() AS "now!"
FROM merchants
-- Each merchant's newest, from the index by merchant and time: an index by time alone is one that every charge would
-- pay for.
CROSS JOIN LATERAL (
    SELECT *
    FROM charges
    WHERE charges.merchant_id = merchants.id
        AND charges.stage = ANY($1::text[])
        AND ($3::text IS NULL OR charges.reference = $3)
        AND ($4::interval IS NULL OR charges.created_at < now() - $4)
        AND ($6::text IS NULL OR charges.provider_account = $6 OR charges.provider_account IS NULL AND $7::boolean)
    ORDER BY charges.created_at DESC, charges.id DESC
    LIMIT $5
) AS charges
LEFT JOIN outbox
    ON outbox.charge_id = charges.id
    AND outbox.kind = 'charge'
WHERE $2::uuid IS NULL
    OR merchants.id = $2
ORDER BY charges.created_at DESC, charges.id DESC
LIMIT $5
