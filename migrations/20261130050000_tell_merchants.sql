-- What merchants are told: events, where they are sent, and each sending of one to one of them.

CREATE TABLE webhook_endpoints (
    id                    uuid PRIMARY KEY,
    merchant_id           uuid NOT NULL,
    url                   text NOT NULL,
    events                text[] NOT NULL DEFAULT '{}',
    description           text,
    enabled               boolean NOT NULL DEFAULT true,
    disabled_reason       text,
    secret                bytea NOT NULL,
    previous_secret       bytea,
    previous_secret_until timestamptz,
    failing_since         timestamptz,
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT webhook_endpoints_disabled CHECK (enabled = (disabled_reason IS NULL)),
    CONSTRAINT webhook_endpoints_disabled_reason CHECK (disabled_reason IN ('merchant', 'gone', 'failing')),
    CONSTRAINT webhook_endpoints_previous_secret CHECK (
        (previous_secret IS NULL) = (previous_secret_until IS NULL)
    )
);
COMMENT ON TABLE webhook_endpoints IS 'Where merchants want their events.';
COMMENT ON COLUMN webhook_endpoints.events IS 'The types that are wanted; empty for all.';
COMMENT ON COLUMN webhook_endpoints.secret IS
    'What deliveries are signed with, as it is: an HMAC needs the key itself. Whoever reads it can sign for us.';
COMMENT ON COLUMN webhook_endpoints.previous_secret IS 'Signs too until its time is over: after a rotation.';
COMMENT ON COLUMN webhook_endpoints.failing_since IS 'The first failure after the last success.';
CREATE INDEX webhook_endpoints_merchant_id_idx ON webhook_endpoints (merchant_id);

CREATE TABLE events (
    merchant_id uuid NOT NULL,
    position    bigint NOT NULL DEFAULT (pg_current_xact_id()::text)::bigint,
    id          bigint GENERATED ALWAYS AS IDENTITY,
    type        text NOT NULL,
    charge_id   uuid,
    object_id   uuid NOT NULL,
    version     integer NOT NULL,
    snapshot    jsonb NOT NULL,
    body        text,
    at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT events_pkey PRIMARY KEY (merchant_id, position, id)
);
COMMENT ON TABLE events IS 'What merchants are told, written by the statement that made it true.';
COMMENT ON COLUMN events.position IS
    'The transaction that wrote it. Those below the oldest one under way are settled: none of them appears later.';
COMMENT ON COLUMN events.object_id IS 'What it is of; with type and version it names the event.';
COMMENT ON COLUMN events.snapshot IS
    'Of a charge what can change, as it was then: the rest never changes and stands on the charge. Of others all of it.';
COMMENT ON COLUMN events.body IS 'What is sent, once anybody was to be sent it: every attempt, of any release, sends the same bytes.';
CREATE INDEX events_charge_id_idx ON events (charge_id, position, id) WHERE charge_id IS NOT NULL;

CREATE TABLE webhook_deliveries (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    endpoint_id     uuid NOT NULL,
    merchant_id     uuid NOT NULL,
    event_position  bigint NOT NULL,
    event_id        bigint NOT NULL,
    state           text NOT NULL DEFAULT 'due',
    attempt         integer NOT NULL DEFAULT 0,
    tries           integer NOT NULL DEFAULT 0,
    run_at          timestamptz NOT NULL DEFAULT now(),
    lease_token     uuid,
    lease_until     timestamptz,
    last_status     integer,
    last_error      text,
    last_attempt_at timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT webhook_deliveries_state CHECK (state IN ('due', 'leased', 'delivered', 'failed')),
    CONSTRAINT webhook_deliveries_lease CHECK (
        (state = 'leased') = (lease_token IS NOT NULL) AND (state = 'leased') = (lease_until IS NOT NULL)
    )
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
COMMENT ON TABLE webhook_deliveries IS 'One event on its way to one endpoint, written with the event. No FK on the hot path.';
COMMENT ON COLUMN webhook_deliveries.attempt IS 'How often it was claimed; told to the receiver.';
COMMENT ON COLUMN webhook_deliveries.tries IS 'How often it was sent without success since it was last asked for; sets when it is sent again.';
CREATE INDEX webhook_deliveries_due_idx ON webhook_deliveries (endpoint_id, run_at) WHERE state = 'due';
CREATE INDEX webhook_deliveries_leased_idx ON webhook_deliveries (lease_until) WHERE state = 'leased';
CREATE INDEX webhook_deliveries_endpoint_id_idx ON webhook_deliveries (endpoint_id, created_at, id);
CREATE INDEX webhook_deliveries_created_at_idx ON webhook_deliveries (created_at);
