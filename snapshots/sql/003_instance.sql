-- One row an instance, for people and queries: a projection, never read back into the fold.
CREATE TABLE $schema.workflow_instance (
    workflow     text COLLATE "C" NOT NULL,
    partition    integer NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    instance_id  text COLLATE "C" NOT NULL,
    definition   integer NOT NULL,
    state        text COLLATE "C" NOT NULL,
    state_since  timestamptz NOT NULL,
    run_status   text COLLATE "C" NOT NULL,
    context      jsonb NOT NULL,
    -- true where JSONB cannot hold what the canonical snapshot holds
    lossy        boolean NOT NULL,
    version      integer NOT NULL,
    last_offset  bigint NOT NULL,
    last_source  text COLLATE "C" NOT NULL,
    last_id      text COLLATE "C" NOT NULL,
    due          timestamptz,
    failure_code text COLLATE "C",
    failure_text text,
    created      timestamptz NOT NULL,
    updated      timestamptz NOT NULL,
    PRIMARY KEY (workflow, tenant, instance_id)
);
CREATE INDEX workflow_instance_status
    ON $schema.workflow_instance (run_status, due, updated);
CREATE INDEX workflow_instance_state
    ON $schema.workflow_instance (state, state_since);
