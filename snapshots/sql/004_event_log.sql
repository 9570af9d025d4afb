-- One row a record read: what became of it. The payload stays on the topic.
CREATE TABLE $schema.workflow_event_log (
    topic_id        text COLLATE "C" NOT NULL,
    partition       integer NOT NULL,
    log_offset      bigint NOT NULL,
    workflow        text COLLATE "C" NOT NULL,
    tenant          text COLLATE "C" NOT NULL,
    instance_id     text COLLATE "C" NOT NULL,
    source          text COLLATE "C" NOT NULL,
    id              text COLLATE "C" NOT NULL,
    type            text COLLATE "C" NOT NULL,
    log_time        timestamptz NOT NULL,
    folded_at       timestamptz NOT NULL DEFAULT now(),
    verdict         text COLLATE "C" NOT NULL,
    transition      text COLLATE "C" NOT NULL,
    state_before    text COLLATE "C" NOT NULL,
    state_after     text COLLATE "C" NOT NULL,
    -- idempotency keys of the commands it caused; the direction is a key's last part
    commands        text[] COLLATE "C" NOT NULL,
    code            text COLLATE "C" NOT NULL,
    text            text NOT NULL,
    -- the second net: an applied event whose identity was applied before
    doubled         boolean NOT NULL DEFAULT false,
    resolution      text COLLATE "C",
    resolved_by     bigint,
    resolution_code text COLLATE "C",
    resolution_text text,
    PRIMARY KEY (topic_id, partition, log_offset)
);
-- "Applied at most once" held by the database too; finds an applied event by its id.
CREATE UNIQUE INDEX workflow_event_log_applied
    ON $schema.workflow_event_log (id, source, instance_id, tenant, topic_id)
    WHERE verdict = 'applied' AND NOT doubled;
-- The few that the index above leaves out.
CREATE INDEX workflow_event_log_other
    ON $schema.workflow_event_log (id, source)
    WHERE verdict <> 'applied' OR doubled;
CREATE INDEX workflow_event_log_history
    ON $schema.workflow_event_log (instance_id, log_offset);
-- Thinning by age reads a few block ranges.
CREATE INDEX workflow_event_log_age
    ON $schema.workflow_event_log USING brin (log_time);
