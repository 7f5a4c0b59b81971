-- What GET /v1/charges walks. Ascending, and read backwards: new entries go to the right end of their merchant's, where
-- pages fill up.
CREATE INDEX charges_merchant_id_created_at_idx ON charges (merchant_id, created_at, id);
CREATE INDEX charges_reference_idx ON charges (merchant_id, reference, created_at, id) WHERE reference IS NOT NULL;

-- An index that names stage, even in its predicate, would end the HOT update with which every charge is finished. This
-- column has the same value, none, through the whole life of a charge that goes well.
ALTER TABLE charges ADD COLUMN rare_stage text GENERATED ALWAYS AS (
    CASE WHEN stage IN ('requires_action', 'requires_reconciliation', 'failed', 'canceled') THEN stage END
) STORED;
COMMENT ON COLUMN charges.rare_stage IS
    'The stage, if few charges pass through it. The other open stages are found among the newest charges or by the outbox.';
CREATE INDEX charges_rare_stage_idx ON charges (merchant_id, rare_stage, created_at, id) WHERE rare_stage IS NOT NULL;
