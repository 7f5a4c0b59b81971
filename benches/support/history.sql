-- The charges from $1 to $2 of a history of $3, of one merchant over 300 days: most of them succeeded, some failed, a few
-- were canceled, and one in ten thousand waits for its customer.
WITH history AS MATERIALIZED (
    SELECT
        i,
        md5('charge' || i)::uuid AS id,
        md5('key' || i)::uuid::text AS client_key,
        CASE
            WHEN i % 10000 = 0 THEN 'requires_action'
            WHEN i % 25 = 1 THEN 'failed'
            WHEN i % 100 = 2 THEN 'canceled'
            ELSE 'succeeded'
        END AS stage,
        'pi_3' || left(md5('object' || i), 23) AS object,
        now() - interval '300 days' * (1 - i::float8 / $3) AS at
    FROM generate_series($1, $2) AS i
),
new_charges AS (
    INSERT INTO charges (
        id, merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency, payment_method, off_session,
        reference, metadata, live, provider, stage, money, version, attempts, provider_account, provider_charge_id,
        failure, next_action, created_at, updated_at, finished_at
    )
    SELECT
        id, $4, client_key, sha256(client_key::bytea), 1, 1999, 'usd', 'pm_card_visa', false,
        client_key, jsonb_build_object('order', client_key), false, 'stripe', stage,
        CASE stage WHEN 'succeeded' THEN 'moved' WHEN 'requires_action' THEN 'unknown' ELSE 'not_moved' END,
        3, 1, 'default', object,
        CASE stage
            WHEN 'failed' THEN jsonb_build_object(
                'code', 'declined', 'message', 'The payment was declined.', 'provider_code', 'generic_decline',
                'advice', 'use_another_payment_method'
            )
        END,
        CASE stage WHEN 'requires_action' THEN jsonb_build_object('url', 'https://bank.example/authenticate') END,
        at, at, CASE WHEN stage <> 'requires_action' THEN at END
    FROM history
),
requests AS (
    INSERT INTO idempotent_requests (
        merchant_id, operation, client_key, charge_id, status, intake_id, created_at, updated_at
    )
    SELECT
        $4, 'charge', client_key, id,
        CASE stage WHEN 'succeeded' THEN 'completed' WHEN 'requires_action' THEN 'in_progress' ELSE 'failed' END,
        md5('intake' || i)::uuid, at, at
    FROM history
),
jobs AS (
    INSERT INTO outbox (kind, charge_id, payload_version, payload, attempt, run_at, created_at)
    SELECT
        'charge', id, 1, jsonb_build_object('amount', 1999, 'currency', 'usd', 'payment_method', 'pm_card_visa'),
        3, now() + interval '1 day', at
    FROM history
    WHERE stage = 'requires_action'
)
INSERT INTO charge_events (charge_id, version, kind, actor, detail, at)
SELECT id, version, kind, 'worker', jsonb_build_object('attempt', 1, 'provider_charge_id', object), at
FROM history
CROSS JOIN LATERAL (VALUES (2, 'execute_started'), (3, stage)) AS events (version, kind)
ORDER BY i, version
