-- What the service writes for one request of the load, row by row of the same size, in one transaction of three
-- statements. No row refers to another by a foreign key, so each takes a random id of its own.
BEGIN;
INSERT INTO idempotent_requests (merchant_id, operation, client_key, charge_id, intake_id)
VALUES (
    '11111111-1111-4111-8111-111111111111', 'charge', gen_random_uuid()::text, gen_random_uuid(), gen_random_uuid()
);
INSERT INTO charges (
    id, merchant_id, idempotency_key, fingerprint, fingerprint_version, amount, currency, payment_method, off_session,
    reference, metadata, live, provider
)
VALUES (
    gen_random_uuid(), '11111111-1111-4111-8111-111111111111', 'ac0ffee0-0000-4000-8000-000000000000',
    '\x0a78c761ecb367ac278230be01b42980bdac48d68ecbe83e71f341d72e4f4647', 1, 1999, 'usd', 'pm_card_visa', false,
    'ac0ffee0-0000-4000-8000-000000000000', '{"order": "ac0ffee0-0000-4000-8000-000000000000"}', false, 'stripe'
);
INSERT INTO outbox (kind, charge_id, merchant_id, payload_version, payload)
VALUES (
    'charge', gen_random_uuid(), '11111111-1111-4111-8111-111111111111', 1,
    '{"amount": 1999, "currency": "usd", "payment_method": "pm_card_visa", "metadata": {"order": "ac0ffee0-0000-4000-8000-000000000000"}}'
);
COMMIT;
