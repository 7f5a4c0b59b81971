-- One merchant's backlog must not keep the others' jobs waiting: claims can go from merchant to merchant.

ALTER TABLE outbox ADD COLUMN merchant_id uuid;
COMMENT ON COLUMN outbox.merchant_id IS
    'The merchant of the charge, since the release that writes it; a row without it is claimed by its age alone.';

-- Every accepted charge pays for it, so without the id: jobs of one merchant and one moment came in one batch.
-- Within a transaction: `CONCURRENTLY` would wait for the processes that wait for this migration, and they for it. Only
-- what is not done yet is in the table.
CREATE INDEX outbox_merchant_ready_idx ON outbox (merchant_id, run_at) WHERE state = 'ready';
