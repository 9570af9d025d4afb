-- What the other side has accepted, by when it is to be asked about: most rows never stand here.
CREATE INDEX ON $schema.workflow_action (target, type, not_before)
    WHERE status = 'in_flight' AND reference <> '';
