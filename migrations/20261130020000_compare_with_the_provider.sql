-- The provider's objects against our charges, in both directions: a sweep walks all of a time window, once for everybody
-- who waits for it.

CREATE TABLE sweeps (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider         text NOT NULL,
    provider_account text NOT NULL,
    reason           text NOT NULL,
    from_at          timestamptz NOT NULL,
    asked_at         timestamptz NOT NULL DEFAULT now(),
    began_at         timestamptz,
    lease_token      uuid,
    lease_until      timestamptz,
    finished_at      timestamptz,
    objects          bigint NOT NULL DEFAULT 0,
    last_error       text,
    CONSTRAINT sweeps_reason CHECK (reason IN ('routine', 'look', 'recovery', 'operator')),
    CONSTRAINT sweeps_lease CHECK ((lease_token IS NOT NULL) = (lease_until IS NOT NULL)),
    CONSTRAINT sweeps_finished CHECK (finished_at IS NULL OR (began_at IS NOT NULL AND lease_token IS NULL))
);
COMMENT ON COLUMN sweeps.from_at IS 'Objects that were made from then on, by the provider''s clock, are walked.';
COMMENT ON COLUMN sweeps.began_at IS
    'When the walk that is under way or finished began. Every object that was made before it has been seen, once finished.';
CREATE INDEX sweeps_open_idx ON sweeps (provider_account, id) WHERE finished_at IS NULL;
CREATE INDEX sweeps_finished_idx ON sweeps (provider_account, began_at) WHERE finished_at IS NOT NULL;

CREATE TABLE stray_objects (
    provider           text NOT NULL,
    provider_charge_id text NOT NULL,
    provider_account   text NOT NULL,
    charge_id          uuid NOT NULL,
    status             text NOT NULL,
    amount             bigint NOT NULL,
    currency           text NOT NULL,
    seen_at            timestamptz NOT NULL DEFAULT now(),
    settled_at         timestamptz,
    CONSTRAINT stray_objects_pkey PRIMARY KEY (provider, provider_charge_id)
);
COMMENT ON TABLE stray_objects IS
    'Objects with our stamp that no charge stores: left by a lost reply, or by rows that a restore lost. While one is not settled, no other object of its charge is executed and its charge does not fail.';
COMMENT ON COLUMN stray_objects.charge_id IS 'What the stamp says; there may be no such charge.';
COMMENT ON COLUMN stray_objects.amount IS 'In the provider''s units.';
COMMENT ON COLUMN stray_objects.settled_at IS 'Since when it can''t stand in anybody''s way: stored by its charge, canceled, or written down as a discrepancy.';
CREATE INDEX stray_objects_charge_id_idx ON stray_objects (charge_id) WHERE settled_at IS NULL;

ALTER TABLE outbox
    ADD COLUMN look_from timestamptz,
    ADD COLUMN look_asked_at timestamptz;
COMMENT ON COLUMN outbox.look_from IS
    'The job waits for a sweep of the objects that were made from then on: the provider may have forgotten our key.';
COMMENT ON COLUMN outbox.look_asked_at IS 'A sweep that began after it answers the job.';
ALTER TABLE outbox ADD COLUMN last_call jsonb;
COMMENT ON COLUMN outbox.last_call IS
    'The last call of the last run: what was asked, what came back in a word, and the provider''s own id of the request.';
CREATE INDEX outbox_look_idx ON outbox (look_from) WHERE look_from IS NOT NULL;

-- Charges come in the order of their time and stay where they are: a few bytes for each hundred pages find a day's.
CREATE INDEX charges_created_at_idx ON charges USING brin (created_at) WITH (autosummarize = on);

ALTER TABLE discrepancies
    DROP CONSTRAINT discrepancies_kind,
    ADD CONSTRAINT discrepancies_kind CHECK (
        kind IN (
            'amount_differs', 'currency_differs', 'stamp_differs', 'second_success', 'success_after_failed',
            'theirs_only', 'ours_only'
        )
    ),
    ADD COLUMN resolution text;
COMMENT ON COLUMN discrepancies.resolution IS 'Who resolved it, or what, and why.';
