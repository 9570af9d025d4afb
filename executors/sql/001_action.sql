-- Intents and what became of them: one row an idempotency key (P30 to P33).
CREATE TABLE $schema.workflow_action (
    key           text COLLATE "C" PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL,
    workflow      text COLLATE "C" NOT NULL,
    instance_id   text COLLATE "C" NOT NULL,
    -- source and id of the event that caused it, as in the key, where that can be read
    event         text COLLATE "C" NOT NULL GENERATED ALWAYS AS
                  (CASE WHEN key LIKE 'r1:%' THEN split_part(key, ':', 7) ELSE '' END) STORED,
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
    -- the highest attempt that was asked for: it begins when the one before it has failed (P31)
    wanted        integer NOT NULL,
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
    -- the person who settled it; why stands in the reason
    decided_by    text NOT NULL DEFAULT '',
    -- said later: the opposite of what stands
    contradicted  boolean NOT NULL DEFAULT false,
    -- empty: nobody waits for a result
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
-- Time windows of the unsettled, and of all: rows are written in the order of their time.
CREATE INDEX ON $schema.workflow_action (status, planned)
    WHERE status IN ('planned', 'in_flight', 'unknown');
-- What waits, in the order in which it is claimed; most commands begin at once and never stand here.
CREATE INDEX ON $schema.workflow_action (target, type, planned, log_offset)
    WHERE status = 'planned';
CREATE INDEX ON $schema.workflow_action (target)
    WHERE status = 'planned' AND direction = 'compensate';
CREATE INDEX ON $schema.workflow_action USING brin (planned) WITH (autosummarize = on);
CREATE INDEX ON $schema.workflow_action (instance_id, workflow, tenant)
    WHERE status IN ('planned', 'in_flight');
CREATE INDEX ON $schema.workflow_action (planned) WHERE contradicted;

-- What other sides call the actions that they have accepted, for ever: answers come late.
CREATE TABLE $schema.workflow_reference (
    target    text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL REFERENCES $schema.workflow_action ON DELETE CASCADE,
    epoch     integer NOT NULL,
    PRIMARY KEY (target, reference)
);
CREATE INDEX ON $schema.workflow_reference (key);

-- Answers whose reference no row bears yet: they settle the row that comes to bear it.
CREATE TABLE $schema.workflow_early_answer (
    target    text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL,
    status    text COLLATE "C" NOT NULL CHECK (status IN ('succeeded', 'failed')),
    type      text COLLATE "C" NOT NULL,
    value     bytea NOT NULL,
    reason    text NOT NULL,
    came      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (target, reference, status)
);

-- Commands whose key stands with another request: refused, kept, and shown.
CREATE TABLE $schema.workflow_clash (
    key          text COLLATE "C" NOT NULL REFERENCES $schema.workflow_action ON DELETE CASCADE,
    request_hash bytea NOT NULL,
    type         text COLLATE "C" NOT NULL,
    request      bytea NOT NULL,
    attempt      integer NOT NULL,
    partition    integer NOT NULL,
    log_offset   bigint NOT NULL,
    seen         integer NOT NULL DEFAULT 1,
    first_seen   timestamptz NOT NULL DEFAULT now(),
    last_seen    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (key, request_hash)
);

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
    worker  text COLLATE "C" NOT NULL,
    target  text COLLATE "C" NOT NULL,
    scanned timestamptz NOT NULL,
    PRIMARY KEY (worker, target)
);
