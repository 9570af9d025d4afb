-- What an instance waits for: armed timers and open actions, with the row that shows it.
ALTER TABLE $schema.workflow_instance
    ADD COLUMN timers jsonb,
    ADD COLUMN actions jsonb;

-- The owner of a partition asks here for what is due next (P26). `due` is null while an instance
-- is parked: it rings again when it is released.
CREATE INDEX workflow_instance_due
    ON $schema.workflow_instance (workflow, partition, due, tenant, instance_id)
    WHERE due IS NOT NULL;

-- They were empty and are made anew: a reader's role gets its right to see them from `refold db
-- grant`, run again.
DROP VIEW $views.timers;
DROP VIEW $views.actions;

CREATE VIEW $views.timers AS
SELECT i.workflow, i.tenant, i.instance_id, t.id, t.name, i.state, t.attempt,
       to_timestamp(t.due_ms / 1000.0) AS due, coalesce(t.key, '') AS key
FROM $schema.workflow_instance i
CROSS JOIN LATERAL jsonb_to_recordset(i.timers)
    AS t (id text, name text, attempt integer, due_ms bigint, key text);

CREATE VIEW $views.actions AS
SELECT i.workflow, i.tenant, i.instance_id, a.key, a.action, a.state,
       a.direction, a.attempt, a.status, to_timestamp(a.since_ms / 1000.0) AS since,
       NULL::text AS failure_code, NULL::text AS failure_text, a.target
FROM $schema.workflow_instance i
CROSS JOIN LATERAL jsonb_to_recordset(i.actions)
    AS a (key text, action text, state text, direction text, attempt integer, status text,
          since_ms bigint, target text);
