-- What the provider tells by webhook, each event once. An event is news and no truth: it lets a job or a sweep look.

CREATE TABLE provider_events (
    provider           text NOT NULL,
    event_id           text NOT NULL,
    provider_account   text NOT NULL,
    kind               text NOT NULL,
    provider_charge_id text,
    charge_id          uuid,
    effect             text NOT NULL,
    created_at         timestamptz NOT NULL,
    received_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT provider_events_pkey PRIMARY KEY (provider, event_id),
    CONSTRAINT provider_events_effect CHECK (effect IN ('nudged', 'sweep_asked', 'nothing_new', 'not_ours', 'other_mode'))
);
COMMENT ON COLUMN provider_events.kind IS 'The provider''s word for it: payment_intent.succeeded.';
COMMENT ON COLUMN provider_events.provider_charge_id IS 'The object that the event is about or belongs to.';
COMMENT ON COLUMN provider_events.charge_id IS 'The charge that stores the object or that the stamp names; there may be no such charge.';
COMMENT ON COLUMN provider_events.effect IS 'What was done in the statement that stored the event.';
COMMENT ON COLUMN provider_events.created_at IS 'By the provider''s clock.';
CREATE INDEX provider_events_charge_id_idx ON provider_events (charge_id) WHERE charge_id IS NOT NULL;
CREATE INDEX provider_events_received_at_idx ON provider_events (received_at);

ALTER TABLE sweeps
    DROP CONSTRAINT sweeps_reason,
    ADD CONSTRAINT sweeps_reason CHECK (reason IN ('routine', 'look', 'recovery', 'operator', 'event'));
