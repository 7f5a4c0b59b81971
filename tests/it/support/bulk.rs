//! Charges by the thousand, written past the service: for what needs many of them and no money.

use payonce::domain::idempotency::IdempotencyKey;
use payonce::domain::ids::{ChargeId, MerchantId};

use super::TestService;

/// Seven charges share each moment. Of a hundred, one has a reference that others share; of a thousand, most succeeded.
const FILL: &str = "
    WITH made AS (
        INSERT INTO charges (
            id, merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency, payment_method,
            off_session, reference, metadata, live, provider, stage, money, version, provider_account,
            provider_charge_id, failure, next_action, created_at, finished_at
        )
        SELECT
            id, $1, 'bulk-' || g, decode(repeat('ab', 32), 'hex'), 1, 1000, 'usd',
            'pm_card_visa', false,
            CASE WHEN g % 100 = 0 THEN 'subscription' WHEN g % 10 < 7 THEN 'order-' || g END, '{}', false, 'stripe',
            stage,
            CASE
                WHEN stage = 'succeeded' THEN 'moved'
                WHEN stage IN ('pending', 'failed', 'canceled') THEN 'not_moved'
                ELSE 'unknown'
            END,
            2,
            CASE WHEN stage <> 'pending' THEN 'default' END,
            CASE WHEN stage <> 'pending' THEN 'pi_' || md5($1::text || g) END,
            CASE WHEN stage = 'failed' THEN '{\"code\":\"card_declined\",\"message\":\"No.\",\"advice\":\"do_not_try_again\"}'::jsonb END,
            CASE WHEN stage = 'requires_action' THEN '{\"url\":\"https://bank.example\",\"expires_at\":null}'::jsonb END,
            created_at,
            CASE WHEN stage IN ('succeeded', 'failed', 'canceled') THEN created_at + interval '1 second' END
        FROM (
            SELECT
                id, g,
                timestamptz '2026-01-01 00:00Z' + (g / 7) * interval '30 seconds' AS created_at,
                CASE g % 40
                    WHEN 3 THEN 'failed'
                    WHEN 11 THEN 'canceled'
                    WHEN 13 THEN 'requires_action'
                    WHEN 17 THEN 'requires_reconciliation'
                    WHEN 19 THEN 'processing'
                    WHEN 23 THEN 'pending'
                    ELSE 'succeeded'
                END AS stage
            FROM unnest($2::uuid[]) WITH ORDINALITY AS made (id, g)
        ) AS rows
        RETURNING id, finished_at
    )
    INSERT INTO outbox (kind, charge_id, merchant_id, payload_version, payload, run_at)
    SELECT 'charge', id, $1, 1, '{}', now() + interval '1 day'
    FROM made
    WHERE finished_at IS NULL
";

impl TestService {
    /// Writes `count` charges of a merchant, the open ones with their jobs, which are not due while a test runs.
    pub async fn fill(&self, merchant: MerchantId, count: i32) {
        let ids = (1..=count).map(|number| {
            let key = IdempotencyKey::parse(format!("bulk-{number}").as_bytes()).unwrap();
            ChargeId::derive(merchant, &key).as_uuid()
        });
        sqlx::query(FILL)
            .bind(merchant.as_uuid())
            .bind(ids.collect::<Vec<_>>())
            .execute(&self.books)
            .await
            .unwrap();
    }
}

/// Copies of one accepted charge that nobody has begun, under other keys, due for as long as that one has been.
const BACKLOG: &str = "
    WITH model AS (
        SELECT charges.*, outbox.payload, outbox.payload_version
        FROM charges
        JOIN outbox ON outbox.charge_id = charges.id
        WHERE charges.id = $1
    ),
    keys AS MATERIALIZED (
        SELECT g, gen_random_uuid() AS id
        FROM generate_series(1, $2) AS g
    ),
    requests AS (
        INSERT INTO idempotent_requests (merchant_id, operation, client_key, charge_id, intake_id)
        SELECT model.merchant_id, 'charge', 'copy-' || g, keys.id, gen_random_uuid()
        FROM model, keys
    ),
    copies AS (
        INSERT INTO charges (
            id, merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency, payment_method,
            off_session, metadata, live, provider, provider_account
        )
        SELECT
            keys.id, merchant_id, 'copy-' || g, fingerprint, fingerprint_version, amount, currency, payment_method,
            off_session, metadata, live, provider, provider_account
        FROM model, keys
    )
    INSERT INTO outbox (kind, charge_id, merchant_id, provider_account, payload_version, payload)
    SELECT 'charge', keys.id, merchant_id, provider_account, payload_version, payload
    FROM model, keys
";

impl TestService {
    /// Makes `count` more charges like this one, which nobody has begun.
    pub async fn backlog(&self, charge: &str, count: i32) {
        sqlx::query(BACKLOG)
            .bind(super::books::uuid_of(charge))
            .bind(count)
            .execute(&self.books)
            .await
            .unwrap();
    }
}
