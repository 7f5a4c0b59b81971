WITH input AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::smallint[], $6::bigint[], $7::text[], $8::text[],
        $9::text[], $10::text[], $11::boolean[], $12::text[], $13::text[], $14::text[], $15::text[],
        $16::uuid[], $20::text[]
    ) AS input (
        charge_id, merchant_id, client_key, fingerprint, fingerprint_version, amount, currency, payment_method,
        customer, return_url, off_session, reference, description, metadata, payload,
        intake_id, account
    )
),
requests AS (
    INSERT INTO idempotent_requests (merchant_id, operation, client_key, charge_id, intake_id)
    SELECT merchant_id, 'charge', client_key, charge_id, intake_id
    FROM input
    -- The charge answers for its key also when its request row was purged. OFFSET keeps this a look-up of each row by
    -- its primary key: as a join, a plan that was made while the table was small reads all of it for every batch, and
    -- goes on to as it grows.
    WHERE NOT EXISTS (SELECT FROM charges WHERE charges.id = input.charge_id OFFSET 0)
    -- One order for all batches, or two of them deadlock.
    ORDER BY merchant_id, client_key COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING charge_id
),
new_charges AS (
    INSERT INTO charges (
        id, merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency, payment_method,
        customer, return_url, off_session, reference, description, metadata, live, provider, provider_account
    )
    SELECT
        charge_id, merchant_id, client_key, fingerprint, fingerprint_version, amount, currency, payment_method,
        customer, return_url, off_session, reference, description, metadata::jsonb, $17, $18, account
    FROM input
    JOIN requests USING (charge_id)
    RETURNING id, created_at
),
jobs AS (
    INSERT INTO outbox (kind, charge_id, merchant_id, provider_account, payload_version, payload)
    SELECT
        'charge', charge_id, merchant_id, account,
        -- A release that knows one account alone leaves a job that is for a certain one.
        CASE WHEN account IS NULL THEN $19::smallint ELSE $21::smallint END, payload::jsonb
    FROM input
    JOIN requests USING (charge_id)
)
SELECT id, created_at
FROM new_charges
