-- Who owns a partition and how far its state is saved (P4). One row a partition.
CREATE TABLE $schema.workflow_partition (
    topic          text COLLATE "C" NOT NULL,
    partition      integer NOT NULL,
    workflow       text COLLATE "C" NOT NULL,
    topic_id       text COLLATE "C" NOT NULL,
    partitions     integer NOT NULL,
    consumer_group text COLLATE "C" NOT NULL,
    epoch          bigint NOT NULL,
    owner          text COLLATE "C" NOT NULL,
    -- application_name of the owner's sessions: what a successor terminates (P7)
    session        text COLLATE "C" NOT NULL,
    released       boolean NOT NULL,
    marker         bigint NOT NULL,
    rows_to        bigint NOT NULL,
    decisions      bigint NOT NULL,
    digest         bytea NOT NULL,
    counts         jsonb NOT NULL,
    base           bigint NOT NULL,
    takeovers      integer NOT NULL,
    -- activations below `decisions` (P13), as the worker packs them
    activations    bytea NOT NULL DEFAULT '',
    -- the fence that the owner met, and what a person chose; empty where there is none
    fence          text NOT NULL DEFAULT '',
    choice         text NOT NULL DEFAULT '',
    claimed        timestamptz NOT NULL DEFAULT now(),
    saved          timestamptz,
    PRIMARY KEY (topic, partition),
    -- snapshots and rows are keyed by workflow: two topics of one workflow need two schemas
    UNIQUE (workflow, partition)
) WITH (fillfactor = 50); -- small and updated all the time: room for updates in place
