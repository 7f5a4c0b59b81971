-- The charge is locked first: what is left of it is read as it stands then, and reserved before anybody else can read it.
WITH charge AS MATERIALIZED (
    SELECT
        id, merchant_id, stage, amount, amount_refunded, amount_refunding, currency, live, provider, provider_account,
        provider_charge_id
    FROM charges
    WHERE id = $2
        AND merchant_id = $3
    FOR NO KEY UPDATE
),
room AS MATERIALIZED (
    SELECT
        charge.*,
        amount - amount_refunded - amount_refunding
            -- Its own rows were lost, and a sweep has counted it among those made outside.
            + COALESCE((
                SELECT sum(external_refunds.amount)
                FROM external_refunds
                WHERE external_refunds.charge_id = $2
                    AND external_refunds.refund_id = $1
                    AND external_refunds.counted
            ), 0)::bigint AS unrefunded
    FROM charge
),
request AS (
    INSERT INTO idempotent_requests (merchant_id, operation, client_key, charge_id, refund_id, intake_id)
    SELECT merchant_id, 'refund', $4, id, $1, $5
    FROM room
    WHERE stage = 'succeeded'
        AND provider_charge_id IS NOT NULL
        AND CASE WHEN $8::bigint IS NULL THEN unrefunded = $9 ELSE unrefunded >= $9 END
        -- The refund answers for its key also when its request row was purged.
        AND NOT EXISTS (SELECT FROM refunds WHERE refunds.id = $1)
    ON CONFLICT DO NOTHING
    RETURNING charge_id
),
reserved AS (
    UPDATE charges
    SET amount_refunding = charges.amount_refunding + $9
    FROM request
    WHERE charges.id = request.charge_id
    RETURNING charges.id, charges.version
),
refund AS (
    INSERT INTO refunds (
        id, charge_id, merchant_id, idempotency_key, fingerprint, fingerprint_version, asked_amount, amount, currency,
        reason, metadata, live, provider, provider_account, provider_charge_id
    )
    SELECT
        $1, room.id, room.merchant_id, $4, $6, $7, $8, $9, room.currency,
        $10, $11::text::jsonb, room.live, room.provider, room.provider_account, room.provider_charge_id
    FROM room
    JOIN reserved ON reserved.id = room.id
    RETURNING id, charge_id, merchant_id, created_at
),
job AS (
    INSERT INTO outbox (kind, charge_id, refund_id, merchant_id, payload_version, payload)
    SELECT 'refund', charge_id, id, merchant_id, $12, $13::text::jsonb
    FROM refund
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, detail)
    SELECT id, version, 'refund_accepted', 'merchant', jsonb_build_object('refund_id', $14::text, 'amount', $9)
    FROM reserved
)
SELECT
    room.stage AS "stage!", room.unrefunded AS "unrefunded!",
    (SELECT created_at FROM refund) AS created_at
FROM room
