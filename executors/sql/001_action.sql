-- Intents and what became of them: one row an idempotency key (P30 to P33).
CREATE TABLE $schema.workflow_action (
    key           text COLLATE "C" PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL,
    workflow      text COLLATE "C" NOT NULL,
    instance_id   text COLLATE "C" NOT NULL,
    state         text COLLATE "C" NOT NULL,
    action        text COLLATE "C" NOT NULL,
    direction     text COLLATE "C" NOT NULL CHECK (direction IN ('forward', 'compensate')),
    -- part of the command topic's name, and the other side as people know it
    target        text COLLATE "C" NOT NULL,
    target_system text COLLATE "C" NOT NULL,
    truth         text COLLATE "C" NOT NULL
                  CHECK (truth IN ('by_key', 'queryable', 'local', 'neither')),
    type          text COLLATE "C" NOT NULL,
    request       bytea NOT NULL,
    request_hash  bytea NOT NULL,
    attempt       integer NOT NULL,
    status        text COLLATE "C" NOT NULL DEFAULT 'planned'
                  CHECK (status IN ('planned', 'in_flight', 'succeeded', 'failed', 'unknown',
                                    'cancelled')),
    -- counts the claims: an answer of an older one does not overwrite a newer one's
    epoch         integer NOT NULL DEFAULT 0,
    worker        text COLLATE "C" NOT NULL DEFAULT '',
    lease_until   timestamptz,
    not_before    timestamptz NOT NULL DEFAULT now(),
    -- the other side said that it had done this before
    already       boolean NOT NULL DEFAULT false,
    result_type   text COLLATE "C" NOT NULL DEFAULT '',
    result        bytea,
    result_event  text COLLATE "C" NOT NULL DEFAULT '',
    reason        text NOT NULL DEFAULT '',
    reply_to      text COLLATE "C" NOT NULL,
    trace         text COLLATE "C" NOT NULL DEFAULT '',
    -- where the command stands: the order of an instance's commands
    partition     integer NOT NULL,
    log_offset    bigint NOT NULL,
    planned       timestamptz NOT NULL DEFAULT now(),
    dispatched    timestamptz,
    recorded      timestamptz
) WITH (fillfactor = 70); -- each row is updated a few times in its life
CREATE INDEX ON $schema.workflow_action (status, planned) WHERE status <> 'succeeded';
CREATE INDEX ON $schema.workflow_action (workflow, tenant, instance_id);

-- Each call of an action: who, when, and how it ended; also answers that came too late to count.
CREATE TABLE $schema.workflow_attempt (
    key     text COLLATE "C" NOT NULL REFERENCES $schema.workflow_action ON DELETE CASCADE,
    epoch   integer NOT NULL,
    attempt integer NOT NULL,
    worker  text COLLATE "C" NOT NULL,
    began   timestamptz NOT NULL,
    ended   timestamptz,
    outcome text COLLATE "C" NOT NULL DEFAULT '',
    reason  text NOT NULL DEFAULT '',
    PRIMARY KEY (key, epoch)
);

-- Events that tell workflows what became of their actions, until Kafka has them (P30).
CREATE TABLE $schema.workflow_result (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key      text COLLATE "C" NOT NULL,
    topic    text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL UNIQUE,
    type     text COLLATE "C" NOT NULL,
    value    bytea NOT NULL,
    trace    text COLLATE "C" NOT NULL
);

-- How far the commands of a partition are planned: written with their rows (P32).
CREATE TABLE $schema.workflow_intake (
    topic     text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    topic_id  text COLLATE "C" NOT NULL,
    position  bigint NOT NULL,
    PRIMARY KEY (topic, partition)
);
