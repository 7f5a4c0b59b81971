-- Of indexes that look equally good Postgres takes the newest, and while a table is empty all look so: what is looked up by
-- its id must not be found by walking a list's index, whose last column the id is. A plan that is made then is kept. (Restored
-- from a dump the tables are not empty.)
ALTER TABLE charges DROP CONSTRAINT charges_pkey, ADD CONSTRAINT charges_pkey PRIMARY KEY (id);
ALTER TABLE refunds DROP CONSTRAINT refunds_pkey, ADD CONSTRAINT refunds_pkey PRIMARY KEY (id);
