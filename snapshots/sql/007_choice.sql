-- What people chose for fenced partitions (P18, P19), kept for ever; the row holds the last one.
CREATE TABLE $schema.workflow_choice (
    topic     text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    number    bigint GENERATED ALWAYS AS IDENTITY,
    fence     text NOT NULL,
    choice    text NOT NULL,
    who       text NOT NULL DEFAULT session_user,
    chosen    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition, number)
);
