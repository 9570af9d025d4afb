-- The stable views: promised like an API. A column is added, never renamed, retyped or removed.
CREATE SCHEMA $views;

CREATE VIEW $views.instances AS
SELECT workflow, tenant, instance_id, partition, definition, state, state_since, run_status,
       context, lossy, version, last_offset, last_source, last_id, due,
       failure_code, failure_text, created, updated
FROM $schema.workflow_instance;

CREATE VIEW $views.events AS
SELECT workflow, tenant, instance_id, topic_id, partition, log_offset, source, id, type,
       log_time, folded_at, verdict, transition, state_before, state_after, commands,
       code, text, doubled, resolution, resolved_by, resolution_code, resolution_text
FROM $schema.workflow_event_log;

CREATE VIEW $views.rejected AS
SELECT workflow, tenant, instance_id, topic_id, partition, log_offset, source, id, type,
       log_time, folded_at, verdict, code, text,
       resolution, resolved_by, resolution_code, resolution_text
FROM $schema.workflow_event_log
WHERE verdict IN ('refused', 'conflict', 'poison', 'parked');

CREATE VIEW $views.partitions AS
SELECT topic, partition, workflow, topic_id, partitions, consumer_group, epoch, owner, released,
       marker, rows_to, decisions, encode(digest, 'hex') AS digest, counts, base, takeovers,
       fence, choice, claimed, saved
FROM $schema.workflow_partition;

-- Empty until executors and timers write them; their columns are promised now.
CREATE VIEW $views.actions AS
SELECT NULL::text AS workflow, NULL::text AS tenant, NULL::text AS instance_id,
       NULL::text AS key, NULL::text AS action, NULL::text AS state,
       NULL::text AS direction, NULL::integer AS attempt, NULL::text AS status,
       NULL::timestamptz AS since, NULL::text AS failure_code, NULL::text AS failure_text
WHERE false;

CREATE VIEW $views.timers AS
SELECT NULL::text AS workflow, NULL::text AS tenant, NULL::text AS instance_id,
       NULL::text AS id, NULL::text AS name, NULL::text AS state,
       NULL::integer AS attempt, NULL::timestamptz AS due
WHERE false;
