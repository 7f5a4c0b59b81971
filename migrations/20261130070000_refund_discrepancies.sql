-- Money that moved for a charge that was told failed goes back, where the policy or an operator says so.

ALTER TABLE discrepancies
    ADD COLUMN provider_account text,
    ADD COLUMN refund_id uuid;
COMMENT ON COLUMN discrepancies.provider_account IS 'The account that holds the object; none where it is that of the charge.';
COMMENT ON COLUMN discrepancies.refund_id IS 'The refund that was made to resolve it; it is resolved once that has completed.';
CREATE UNIQUE INDEX discrepancies_refund_id_key ON discrepancies (refund_id) WHERE refund_id IS NOT NULL;
