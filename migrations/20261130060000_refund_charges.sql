-- Money goes back: refunds, one more kind of job. What is reserved for them stands on their charge, under whose lock it
-- is taken.

CREATE TABLE refunds (
    id                  uuid PRIMARY KEY,
    charge_id           uuid NOT NULL,
    merchant_id         uuid NOT NULL,
    idempotency_key     text COLLATE "C" NOT NULL,
    fingerprint         bytea NOT NULL,
    fingerprint_version smallint NOT NULL,
    asked_amount        bigint,
    amount              bigint NOT NULL CONSTRAINT refunds_amount_positive CHECK (amount > 0),
    currency            text NOT NULL CONSTRAINT refunds_currency_shape CHECK (currency ~ '^[a-z]{3}$'),
    reason              text,
    metadata            jsonb NOT NULL,
    live                boolean NOT NULL,
    provider            text NOT NULL,
    provider_account    text NOT NULL,
    provider_charge_id  text NOT NULL,
    provider_refund_id  text,
    stage               text NOT NULL DEFAULT 'pending',
    money               text NOT NULL DEFAULT 'not_moved',
    version             integer NOT NULL DEFAULT 1,
    attempts            integer NOT NULL DEFAULT 0,
    key_number          integer NOT NULL DEFAULT 0,
    first_attempted_at  timestamptz,
    failure             jsonb,
    recheck_at          timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    finished_at         timestamptz,
    CONSTRAINT refunds_stage_and_money CHECK (
        (stage, money) IN (
            ('pending', 'not_moved'),
            ('processing', 'unknown'),
            ('requires_action', 'unknown'),
            ('requires_reconciliation', 'unknown'),
            ('succeeded', 'moved'),
            ('failed', 'not_moved'),
            ('canceled', 'not_moved')
        )
    ),
    CONSTRAINT refunds_finished CHECK ((finished_at IS NOT NULL) = (stage IN ('succeeded', 'failed', 'canceled'))),
    CONSTRAINT refunds_moved_has_object CHECK (stage <> 'succeeded' OR provider_refund_id IS NOT NULL),
    CONSTRAINT refunds_failed_has_failure CHECK (stage <> 'failed' OR failure IS NOT NULL)
) WITH (fillfactor = 70);
COMMENT ON COLUMN refunds.id IS 'UUIDv5 of the merchant''s id and the client''s key.';
COMMENT ON COLUMN refunds.asked_amount IS 'As the client wrote it; none for all that was left.';
COMMENT ON COLUMN refunds.amount IS 'ISO 4217 minor units; reserved on the charge until the refund ends.';
COMMENT ON COLUMN refunds.provider_account IS 'The account that holds the charge''s object, copied at acceptance.';
COMMENT ON COLUMN refunds.attempts IS 'How often the refund was sent under its current key and may have taken effect.';
COMMENT ON COLUMN refunds.key_number IS
    'Number of the provider key: grows once the last one is known to have done nothing and never to do anything.';
COMMENT ON COLUMN refunds.first_attempted_at IS
    'When it was first sent under its current key; committed before the first byte is. Nothing is sent once the provider may have forgotten the key.';
COMMENT ON COLUMN refunds.recheck_at IS
    'When the provider''s refund is read again: one that succeeded can still fail at the bank. None once it no longer can.';

CREATE UNIQUE INDEX refunds_provider_refund_id_key ON refunds (provider, provider_refund_id)
    WHERE provider_refund_id IS NOT NULL;
CREATE INDEX refunds_charge_id_idx ON refunds (charge_id, created_at, id);
CREATE INDEX refunds_merchant_id_idx ON refunds (merchant_id, created_at, id);
CREATE INDEX refunds_open_idx ON refunds (id) WHERE finished_at IS NULL;
CREATE INDEX refunds_recheck_idx ON refunds (recheck_at) WHERE recheck_at IS NOT NULL;

CREATE TABLE external_refunds (
    provider           text NOT NULL,
    provider_refund_id text NOT NULL,
    charge_id          uuid NOT NULL,
    amount             bigint NOT NULL CONSTRAINT external_refunds_amount_positive CHECK (amount > 0),
    status             text NOT NULL,
    counted            boolean NOT NULL,
    refund_id          uuid,
    found_at           timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT external_refunds_pkey PRIMARY KEY (provider, provider_refund_id)
);
COMMENT ON TABLE external_refunds IS
    'Refunds of our charges that were made outside payonce: they count in amount_refunded, so that we never allow more than is left.';
COMMENT ON COLUMN external_refunds.amount IS 'ISO 4217 minor units.';
COMMENT ON COLUMN external_refunds.counted IS 'Whether it is part of the charge''s amount_refunded.';
COMMENT ON COLUMN external_refunds.refund_id IS
    'What its stamp says, if it has one of ours: a refund whose rows were lost. Accepted again, it takes no room twice.';
CREATE INDEX external_refunds_charge_id_idx ON external_refunds (charge_id);

ALTER TABLE charges
    ADD COLUMN amount_refunded bigint NOT NULL DEFAULT 0,
    ADD COLUMN amount_refunding bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT charges_refunds_not_negative CHECK (amount_refunded >= 0 AND amount_refunding >= 0) NOT VALID;
COMMENT ON COLUMN charges.amount_refunded IS 'What went back: completed refunds, and those made outside payonce.';
COMMENT ON COLUMN charges.amount_refunding IS 'Reserved by refunds in progress. A new refund takes from what neither covers.';

ALTER TABLE idempotent_requests
    ADD COLUMN refund_id uuid,
    DROP CONSTRAINT idempotent_requests_operation,
    ADD CONSTRAINT idempotent_requests_operation CHECK (operation IN ('charge', 'refund')) NOT VALID;
COMMENT ON COLUMN idempotent_requests.refund_id IS 'The refund that the request made; charge_id is the charge it goes back from.';

ALTER TABLE outbox
    ADD COLUMN refund_id uuid,
    DROP CONSTRAINT outbox_kind,
    ADD CONSTRAINT outbox_kind CHECK (kind IN ('charge', 'refund') AND (kind = 'refund') = (refund_id IS NOT NULL)) NOT VALID;
COMMENT ON COLUMN outbox.refund_id IS 'The refund that a job of kind refund is for; charge_id is its charge.';
-- One job a refund, whoever makes it: an acceptance, a repair, a re-read, a nudge.
CREATE UNIQUE INDEX outbox_refund_id_key ON outbox (refund_id) WHERE refund_id IS NOT NULL;

ALTER TABLE discrepancies
    DROP CONSTRAINT discrepancies_kind,
    ADD CONSTRAINT discrepancies_kind CHECK (
        kind IN (
            'amount_differs', 'currency_differs', 'stamp_differs', 'second_success', 'success_after_failed',
            'theirs_only', 'ours_only',
            'refund_differs', 'second_refund', 'refund_success_after_failed', 'refund_unknown'
        )
    ) NOT VALID;
