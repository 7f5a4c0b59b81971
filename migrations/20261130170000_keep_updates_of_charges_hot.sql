-- Which charge stores which object, in a table of its own. As an index on charges it made each storing of an object's id
-- write to all indexes of charges; now a charge that goes well changes no indexed column (HOT).

CREATE TABLE charge_objects (
    provider           text NOT NULL,
    provider_charge_id text COLLATE "C" NOT NULL,
    charge_id          uuid NOT NULL,
    -- No object is ever executed for two charges.
    CONSTRAINT charge_objects_pkey PRIMARY KEY (provider, provider_charge_id)
);
COMMENT ON TABLE charge_objects IS
    'provider_charge_id of charges, to look charges up by: an index that triggers keep, whoever writes to charges.';

-- Two new versions of each row, soon after one another: room for one of them, until the first is pruned.
ALTER TABLE charges SET (fillfactor = 50);

DROP INDEX charges_provider_charge_id_key;
INSERT INTO charge_objects (provider, provider_charge_id, charge_id)
SELECT provider, provider_charge_id, id
FROM charges
WHERE provider_charge_id IS NOT NULL;

CREATE FUNCTION keep_charge_objects() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        -- Also where both are truncated by one command, which forbids the same here.
        DELETE FROM charge_objects;
        RETURN NULL;
    END IF;
    IF OLD.provider_charge_id IS NOT NULL THEN
        DELETE FROM charge_objects
        WHERE provider = OLD.provider
            AND provider_charge_id = OLD.provider_charge_id
            AND charge_id = OLD.id;
    END IF;
    IF NEW.provider_charge_id IS NOT NULL THEN
        INSERT INTO charge_objects (provider, provider_charge_id, charge_id)
        VALUES (NEW.provider, NEW.provider_charge_id, NEW.id);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER charge_objects_updated
    AFTER UPDATE OF provider_charge_id ON charges
    FOR EACH ROW
    WHEN (OLD.provider_charge_id IS DISTINCT FROM NEW.provider_charge_id)
    EXECUTE FUNCTION keep_charge_objects();
CREATE TRIGGER charge_objects_inserted
    AFTER INSERT ON charges
    FOR EACH ROW
    WHEN (NEW.provider_charge_id IS NOT NULL)
    EXECUTE FUNCTION keep_charge_objects();
CREATE TRIGGER charge_objects_deleted
    AFTER DELETE ON charges
    FOR EACH ROW
    WHEN (OLD.provider_charge_id IS NOT NULL)
    EXECUTE FUNCTION keep_charge_objects();
CREATE TRIGGER charge_objects_truncated
    AFTER TRUNCATE ON charges
    FOR EACH STATEMENT
    EXECUTE FUNCTION keep_charge_objects();
