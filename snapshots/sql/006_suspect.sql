-- Records that careful mode is about to fold (P12): a row that stays behind names the killer.
CREATE TABLE $schema.workflow_suspect (
    topic      text COLLATE "C" NOT NULL,
    partition  integer NOT NULL,
    log_offset bigint NOT NULL,
    times      integer NOT NULL,
    -- owner's epoch of the last mark
    epoch      bigint NOT NULL,
    marked     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition, log_offset)
);
