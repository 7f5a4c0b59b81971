SELECT
    charges.id, merchants.name AS "merchant?", charges.idempotency_key, charges.reference, charges.amount,
    charges.currency, charges.stage, charges.money, charges.attempts, charges.provider_account AS account,
    charges.provider_charge_id,
    charges.created_at, charges.updated_at, charges.finished_at, outbox.state AS "job_state?",
    outbox.run_at AS "run_at?", outbox.lease_until, outbox.last_error, outbox.last_call,
    now() AS "now!"
FROM outbox
JOIN charges ON charges.id = outbox.charge_id
LEFT JOIN merchants ON merchants.id = charges.merchant_id
WHERE outbox.kind = 'charge'
    AND (NOT $1::boolean OR outbox.state = 'parked')
    AND charges.stage = ANY($2::text[])
    AND ($3::uuid IS NULL OR charges.merchant_id = $3)
    -- Of the others' jobs not even the charges are read. An earlier release wrote some without their merchant.
    AND ($3::uuid IS NULL OR outbox.merchant_id = $3 OR outbox.merchant_id IS NULL)
    AND ($4::text IS NULL OR charges.reference = $4)
    AND ($5::interval IS NULL OR charges.created_at < now() - $5)
    AND ($7::text IS NULL OR charges.provider_account = $7 OR charges.provider_account IS NULL AND $8::boolean)
-- A job is written with its charge: the newest jobs are those of the newest charges.
ORDER BY outbox.id DESC
LIMIT $6
