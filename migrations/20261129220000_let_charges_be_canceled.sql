-- A client may ask for a cancel at any time; a worker that holds the job takes it to the provider.

ALTER TABLE charges ADD COLUMN cancel_requested_at timestamptz;
COMMENT ON COLUMN charges.cancel_requested_at IS
    'When the client asked for a cancel that the provider must decide. Sticky: an open charge with it is never executed again.';

-- A cancel, like a webhook, has a charge and looks for its job.
CREATE INDEX outbox_charge_id_idx ON outbox (charge_id);
