-- The books: who asked for what, what became of it, and what is left to do.

CREATE TABLE merchants (
    id          uuid PRIMARY KEY,
    name        text NOT NULL CONSTRAINT merchants_name_key UNIQUE,
    created_at  timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz,
    CONSTRAINT merchants_name_length CHECK (char_length(name) BETWEEN 1 AND 100)
);
COMMENT ON TABLE merchants IS 'Who charges. The id is the namespace of the merchant''s charge ids and never changes.';

CREATE TABLE api_keys (
    id          uuid PRIMARY KEY,
    merchant_id uuid NOT NULL REFERENCES merchants (id),
    token_hash  bytea NOT NULL CONSTRAINT api_keys_token_hash_key UNIQUE,
    hint        text NOT NULL,
    scope       text NOT NULL CONSTRAINT api_keys_scope CHECK (scope IN ('read', 'write')),
    mode        text NOT NULL CONSTRAINT api_keys_mode CHECK (mode IN ('test', 'live')),
    created_at  timestamptz NOT NULL DEFAULT now(),
    revoked_at  timestamptz,
    CONSTRAINT api_keys_token_hash_length CHECK (octet_length(token_hash) = 32)
);
COMMENT ON COLUMN api_keys.token_hash IS 'SHA-256 of the token; the token itself is nowhere.';
COMMENT ON COLUMN api_keys.hint IS 'The token''s last four characters, to tell keys apart in a list.';

CREATE TABLE idempotent_requests (
    merchant_id uuid NOT NULL,
    operation   text NOT NULL CONSTRAINT idempotent_requests_operation CHECK (operation IN ('charge')),
    client_key  text COLLATE "C" NOT NULL,
    charge_id   uuid NOT NULL,
    status      text NOT NULL DEFAULT 'in_progress'
        CONSTRAINT idempotent_requests_status CHECK (status IN ('in_progress', 'completed', 'failed')),
    intake_id   uuid NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT idempotent_requests_pkey PRIMARY KEY (merchant_id, operation, client_key),
    CONSTRAINT idempotent_requests_client_key_length CHECK (char_length(client_key) BETWEEN 1 AND 255)
) WITH (fillfactor = 60);
COMMENT ON TABLE idempotent_requests IS
    'The guard between client and us: its primary key lets one insert win. No index may mention status or updated_at: it would end HOT updates.';
COMMENT ON COLUMN idempotent_requests.intake_id IS
    'Which submission made the row, so that one repeated after a lost reply knows its own row.';

CREATE TABLE charges (
    id                  uuid PRIMARY KEY,
    merchant_id         uuid NOT NULL,
    idempotency_key     text COLLATE "C" NOT NULL,
    fingerprint         bytea NOT NULL,
    fingerprint_version smallint NOT NULL,
    amount              bigint NOT NULL CONSTRAINT charges_amount_positive CHECK (amount > 0),
    currency            text NOT NULL CONSTRAINT charges_currency_shape CHECK (currency ~ '^[a-z]{3}$'),
    payment_method      text NOT NULL,
    customer            text,
    return_url          text,
    off_session         boolean NOT NULL,
    reference           text,
    description         text,
    metadata            jsonb NOT NULL,
    live                boolean NOT NULL,
    provider            text NOT NULL,
    stage               text NOT NULL DEFAULT 'pending',
    money               text NOT NULL DEFAULT 'not_moved',
    version             integer NOT NULL DEFAULT 1,
    attempts            integer NOT NULL DEFAULT 0,
    prepares            integer NOT NULL DEFAULT 0,
    provider_account    text,
    provider_charge_id  text,
    failure             jsonb,
    next_action         jsonb,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    finished_at         timestamptz,
    CONSTRAINT charges_stage_and_money CHECK (
        (stage, money) IN (
            ('pending', 'not_moved'),
            ('processing', 'not_moved'),
            ('processing', 'unknown'),
            ('requires_action', 'unknown'),
            ('requires_reconciliation', 'unknown'),
            ('succeeded', 'moved'),
            ('failed', 'not_moved'),
            ('canceled', 'not_moved')
        )
    ),
    CONSTRAINT charges_finished CHECK ((finished_at IS NOT NULL) = (stage IN ('succeeded', 'failed', 'canceled'))),
    CONSTRAINT charges_moved_has_object CHECK (money = 'not_moved' OR provider_charge_id IS NOT NULL),
    CONSTRAINT charges_object_has_account CHECK ((provider_charge_id IS NULL) = (provider_account IS NULL)),
    CONSTRAINT charges_failed_has_failure CHECK (stage <> 'failed' OR failure IS NOT NULL)
) WITH (fillfactor = 70);
COMMENT ON COLUMN charges.id IS 'UUIDv5 of the merchant''s id and the client''s key; it outlives the request row and goes on answering for the key.';
COMMENT ON COLUMN charges.amount IS 'ISO 4217 minor units.';
COMMENT ON COLUMN charges.attempts IS 'How often execute, the step that moves money, was sent.';
COMMENT ON COLUMN charges.prepares IS 'Number of the provider key that prepare uses: grows after the provider replayed an error under the last one.';
COMMENT ON COLUMN charges.provider_account IS 'The configured account that holds the object, pinned with the object''s id.';
COMMENT ON COLUMN charges.provider_charge_id IS 'The one object that is ever executed for this charge.';

CREATE UNIQUE INDEX charges_provider_charge_id_key ON charges (provider, provider_charge_id)
    WHERE provider_charge_id IS NOT NULL;

CREATE TABLE outbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind            text NOT NULL,
    charge_id       uuid NOT NULL,
    payload_version smallint NOT NULL,
    payload         jsonb NOT NULL,
    state           text NOT NULL DEFAULT 'ready',
    attempt         integer NOT NULL DEFAULT 0,
    lease_token     uuid,
    lease_until     timestamptz,
    run_at          timestamptz NOT NULL DEFAULT now(),
    last_error      text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT outbox_kind CHECK (kind IN ('charge')),
    CONSTRAINT outbox_state CHECK (state IN ('ready', 'leased', 'parked')),
    CONSTRAINT outbox_lease CHECK (
        (state = 'leased') = (lease_token IS NOT NULL) AND (state = 'leased') = (lease_until IS NOT NULL)
    )
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.02
);
COMMENT ON TABLE outbox IS 'What is left to do: one row for each charge that is not terminal, written with it and deleted with its last transition.';
COMMENT ON COLUMN outbox.payload IS 'The instruction to the provider, frozen at intake: a release between two attempts sends the same.';
COMMENT ON COLUMN outbox.attempt IS 'How often the row was claimed; sets the pace of retries, never an end.';
COMMENT ON COLUMN outbox.lease_token IS 'Fences the holder: every transition but a success names it.';
COMMENT ON COLUMN outbox.last_error IS 'Why the last run did not finish; a parked row says here what an operator must mend.';

CREATE INDEX outbox_ready_idx ON outbox (run_at, id) WHERE state = 'ready';
CREATE INDEX outbox_leased_idx ON outbox (lease_until) WHERE state = 'leased';

CREATE TABLE charge_events (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    charge_id uuid NOT NULL,
    version   integer NOT NULL,
    kind      text NOT NULL,
    actor     text NOT NULL,
    reason    text,
    detail    jsonb,
    at        timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE charge_events IS 'Append-only history. The acceptance itself is the charge''s created_at.';
COMMENT ON COLUMN charge_events.version IS 'The charge''s version after the event.';
COMMENT ON COLUMN charge_events.actor IS 'A role: worker, reconciler, operator.';

CREATE INDEX charge_events_charge_id_idx ON charge_events (charge_id, id);

CREATE TABLE discrepancies (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind               text NOT NULL,
    provider           text NOT NULL,
    provider_charge_id text NOT NULL,
    charge_id          uuid,
    detail             jsonb NOT NULL,
    found_at           timestamptz NOT NULL DEFAULT now(),
    resolved_at        timestamptz,
    CONSTRAINT discrepancies_kind CHECK (
        kind IN ('amount_differs', 'currency_differs', 'stamp_differs', 'second_success', 'success_after_failed')
    ),
    CONSTRAINT discrepancies_once UNIQUE (provider, provider_charge_id, kind)
);
COMMENT ON TABLE discrepancies IS 'Where our books and the provider''s differ and a person must decide.';
