-- Versions of an instance in canonical bytes. Partition leads the key after the workflow, so that
-- verify, rebuild and prune read one range.
CREATE TABLE $schema.workflow_snapshot (
    workflow    text COLLATE "C" NOT NULL,
    partition   integer NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    version     integer NOT NULL,
    definition  integer NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    state       text COLLATE "C" NOT NULL,
    last_offset bigint NOT NULL,
    last_source text COLLATE "C" NOT NULL,
    last_id     text COLLATE "C" NOT NULL,
    data        bytea NOT NULL,
    hash        bytea NOT NULL,
    created     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workflow, partition, tenant, instance_id, version)
);
-- Canonical bytes hold digests, which do not compress: trying costs time and gains nothing.
ALTER TABLE $schema.workflow_snapshot ALTER COLUMN data SET STORAGE EXTERNAL;
