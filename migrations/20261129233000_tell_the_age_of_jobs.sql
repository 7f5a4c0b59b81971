-- How many jobs there are of each kind and how old the oldest is must be cheap to ask while a million of them wait.

ALTER TABLE outbox ADD COLUMN unclear_since timestamptz;
COMMENT ON COLUMN outbox.unclear_since IS
    'Since when the charge requires reconciliation; kept until the charge is clear again, through every run in between.';

UPDATE outbox
SET unclear_since = charges.updated_at
FROM charges
WHERE charges.id = outbox.charge_id
    AND charges.stage = 'requires_reconciliation';

-- Few rows in each: intake writes to neither.
CREATE INDEX outbox_unclear_idx ON outbox (unclear_since) WHERE unclear_since IS NOT NULL;
CREATE INDEX discrepancies_open_idx ON discrepancies (found_at) WHERE resolved_at IS NULL;
