-- The charge is locked first, as by everything that reserves of it.
WITH charge AS MATERIALIZED (
    SELECT id, merchant_id, amount, currency, live, provider, provider_account
    FROM charges
    WHERE id = $2
        AND stage IN ('failed', 'canceled')
    FOR NO KEY UPDATE
),
discrepancy AS (
    UPDATE discrepancies
    SET refund_id = $3
    FROM charge
    WHERE discrepancies.id = $1
        AND discrepancies.charge_id = charge.id
        AND discrepancies.kind = 'success_after_failed'
        AND discrepancies.resolved_at IS NULL
        AND discrepancies.refund_id IS NULL
        AND NOT EXISTS (SELECT FROM refunds WHERE refunds.id = $3)
    RETURNING
        discrepancies.provider_charge_id, COALESCE(discrepancies.provider_account, charge.provider_account) AS account
),
refund AS (
    INSERT INTO refunds (
        id, charge_id, merchant_id, idempotency_key, fingerprint, fingerprint_version, asked_amount, amount, currency,
        metadata, live, provider, provider_account, provider_charge_id
    )
    SELECT
        $3, charge.id, charge.merchant_id, $4, $5, $6, charge.amount, charge.amount, charge.currency,
        '{}', charge.live, charge.provider, discrepancy.account, discrepancy.provider_charge_id
    FROM charge
    CROSS JOIN discrepancy
    RETURNING id, charge_id, merchant_id, provider_account, amount
),
reserved AS (
    UPDATE charges
    SET amount_refunding = charges.amount_refunding + refund.amount
    FROM refund
    WHERE charges.id = refund.charge_id
    RETURNING charges.id, charges.version
),
job AS (
    INSERT INTO outbox (kind, charge_id, refund_id, merchant_id, provider_account, payload_version, payload)
    SELECT 'refund', charge_id, id, merchant_id, provider_account, $7, $8::text::jsonb
    FROM refund
),
events AS (
    INSERT INTO charge_events (charge_id, version, kind, actor, reason, detail)
    SELECT
        reserved.id, reserved.version, 'refund_accepted', $9, $10,
        jsonb_build_object('refund_id', $11::text, 'amount', refund.amount)
    FROM reserved
    CROSS JOIN refund
)
SELECT id
FROM refund
