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
    independent   boolean NOT NULL DEFAULT false,
    -- its process did not come back: nobody said how the last call ended
    lost          boolean NOT NULL DEFAULT false,
    -- the other side took it, answers later, and calls it so
    reference     text COLLATE "C" NOT NULL DEFAULT '',
    -- the other side said that it had done this before
    already       boolean NOT NULL DEFAULT false,
    result_type   text COLLATE "C" NOT NULL DEFAULT '',
    result        bytea,
    result_event  text COLLATE "C" NOT NULL DEFAULT '',
    result_outcome text COLLATE "C" NOT NULL DEFAULT '',
    reason        text NOT NULL DEFAULT '',
    reply_to      text COLLATE "C" NOT NULL,
    trace         text COLLATE "C" NOT NULL DEFAULT '',
    -- where the command stands: the order of an instance's commands
    partition     integer NOT NULL,
    log_offset    bigint NOT NULL,
    planned       timestamptz NOT NULL DEFAULT now(),
    first_sent    timestamptz,
    dispatched    timestamptz,
    recorded      timestamptz,
    -- each call that ended, and answers that came too late to count: [{epoch, attempt, worker,
    -- began, ended, outcome, reason}]
    attempts      jsonb NOT NULL DEFAULT '[]'
) WITH (fillfactor = 70); -- each row is updated a few times in its life
CREATE INDEX ON $schema.workflow_action (target, status, planned)
    WHERE status IN ('planned', 'in_flight', 'unknown');
CREATE INDEX ON $schema.workflow_action (instance_id, workflow, tenant)
    WHERE status IN ('planned', 'in_flight');
CREATE INDEX ON $schema.workflow_action (reference) WHERE reference <> '';

-- Events that tell workflows what became of their actions, until Kafka has them (P30).
CREATE TABLE $schema.workflow_result (
    id       bigint GENERATED ALWAYS AS IDENTITY,
    key      text COLLATE "C" NOT NULL,
    topic    text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" PRIMARY KEY,
    type     text COLLATE "C" NOT NULL,
    value    bytea NOT NULL,
    attempt  integer NOT NULL,
    outcome  text COLLATE "C" NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'unknown')),
    trace    text COLLATE "C" NOT NULL,
    -- an earlier one of its instance may not be on the log yet: both go out together
    later    boolean NOT NULL,
    recorded timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON $schema.workflow_result (topic, instance);

-- How far the commands of a partition are planned: written with their rows (P32).
CREATE TABLE $schema.workflow_intake (
    topic     text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    topic_id  text COLLATE "C" NOT NULL,
    position  bigint NOT NULL,
    PRIMARY KEY (topic, partition)
);

-- Records of a command topic that are no commands, with their bytes.
CREATE TABLE $schema.workflow_rejected (
    topic     text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    log_offset bigint NOT NULL,
    record_key bytea,
    headers   jsonb NOT NULL,
    value     bytea,
    code      text COLLATE "C" NOT NULL,
    reason    text NOT NULL,
    rejected  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition, log_offset)
);

-- When each process last looked for what is not known.
CREATE TABLE $schema.workflow_scanner (
    worker  text COLLATE "C" PRIMARY KEY,
    target  text COLLATE "C" NOT NULL,
    scanned timestamptz NOT NULL
);
