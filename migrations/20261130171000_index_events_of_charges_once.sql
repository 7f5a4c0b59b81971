-- Events are read by their charge and by nothing else; each transition writes one.
ALTER TABLE charge_events
    DROP CONSTRAINT charge_events_pkey,
    ADD CONSTRAINT charge_events_pkey PRIMARY KEY (charge_id, id);
DROP INDEX charge_events_charge_id_idx;
