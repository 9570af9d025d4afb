"""The SQL of the store, with the schema's name filled in.

Law of this module: text only. The schema's name is checked (`migrate.schema_name`) before it is
filled in; every value is a parameter.
"""

from string import Template
from typing import Final

from refold.snapshots.migrate import schema_name
from refold.snapshots.model import CRASH_LOOP_CLAIMS

_ROW: Final = (
    "topic, partition, workflow, topic_id, partitions, consumer_group, epoch, owner, released, "
    "marker, rows_to, decisions, digest, counts, base, takeovers, activations, fence, choice"
)
_SNAPSHOT: Final = (
    "tenant, instance_id, version, definition, fingerprint, state, last_offset, last_source, "
    "last_id, data, hash"
)
_EVENT: Final = (
    "topic_id, partition, log_offset, workflow, tenant, instance_id, source, id, type, log_time, "
    "verdict, transition, state_before, state_after, commands, code, text"
)
_INSTANCE: Final = (
    "workflow, partition, tenant, instance_id, definition, state, state_since, run_status, "
    "context, lossy, version, last_offset, last_source, last_id, due, failure_code, "
    "failure_text, created, updated, timers, actions"
)
_MINE: Final = "topic = %(topic)s AND partition = %(partition)s AND epoch = %(epoch)s"

_TEXTS: Final = {
    "read": f"SELECT {_ROW} FROM $s.workflow_partition WHERE topic = %s AND partition = %s",
    # The claim never touches what the owner saved: it may have saved since the row was read. A
    # record that is still marked was being folded when its owner ended: careful again (P12).
    "claim": f"""
        UPDATE $s.workflow_partition
        SET epoch = epoch + 1, owner = %(owner)s, session = %(session)s, released = false,
            topic_id = %(topic_id)s, partitions = %(partitions)s, consumer_group = %(group)s,
            claimed = now(), alarm = '', takeovers = 1 + CASE WHEN EXISTS (
                SELECT FROM $s.workflow_suspect
                WHERE topic = %(topic)s AND partition = %(partition)s AND log_offset >= marker)
            THEN greatest(takeovers, {CRASH_LOOP_CLAIMS}) ELSE takeovers END
        WHERE {_MINE} RETURNING {_ROW}""",
    "claim_first": f"""
        INSERT INTO $s.workflow_partition ({_ROW}, session)
        VALUES (%(topic)s, %(partition)s, %(workflow)s, %(topic_id)s, %(partitions)s, %(group)s,
                %(epoch)s + 1, %(owner)s, false, %(marker)s, %(rows_to)s, %(decisions)s,
                %(digest)s, %(counts)s, %(base)s, %(takeovers)s + 1, %(activations)s, '', '',
                %(session)s)
        ON CONFLICT DO NOTHING RETURNING {_ROW}""",
    "topic_of": "SELECT topic FROM $s.workflow_partition WHERE workflow = %s AND partition = %s",
    # pg_locks shows holders to every role; only those that write this table are ended.
    "terminate": """
        SELECT count(pg_terminate_backend(pid, 1000))
        FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
          AND (application_name = (SELECT session FROM $s.workflow_partition
                                   WHERE topic = %(topic)s AND partition = %(partition)s)
               -- A paused worker's first claim is not visible yet: who waits in it is a worker.
               OR NOT EXISTS (SELECT FROM $s.workflow_partition
                              WHERE topic = %(topic)s AND partition = %(partition)s)
                  AND application_name LIKE 'refold:%%'
                  AND xact_start < clock_timestamp() - interval '1 second')
          AND pid IN (SELECT pid FROM pg_locks
                      WHERE relation = '$s.workflow_partition'::regclass
                        AND mode = 'RowExclusiveLock' AND granted)""",
    "release": f"""
        UPDATE $s.workflow_partition SET released = true, takeovers = 0 WHERE {_MINE}""",
    "fence": f"UPDATE $s.workflow_partition SET fence = %(fence)s WHERE {_MINE}",
    "alarm": f"UPDATE $s.workflow_partition SET alarm = %(alarm)s WHERE {_MINE}",
    "parked": """
        SELECT partition, count(*) FROM $s.workflow_instance
        WHERE run_status = 'parked' AND workflow = %s GROUP BY partition""",
    "choose": """
        WITH chosen AS (
            UPDATE $s.workflow_partition SET choice = %(choice)s
            WHERE topic = %(topic)s AND partition = %(partition)s RETURNING fence)
        INSERT INTO $s.workflow_choice (topic, partition, fence, choice)
        SELECT %(topic)s, %(partition)s, fence, %(choice)s FROM chosen""",
    # Counted once an epoch: an answer that was lost does not make a record suspect twice.
    "suspect": """
        INSERT INTO $s.workflow_suspect AS s (topic, partition, log_offset, times, epoch)
        SELECT topic, partition, %(offset)s, 1, epoch FROM $s.workflow_partition
        WHERE topic = %(topic)s AND partition = %(partition)s
        ON CONFLICT (topic, partition, log_offset) DO UPDATE
        SET times = s.times + (s.epoch <> excluded.epoch)::int, epoch = excluded.epoch
        RETURNING times""",
    "clear": """
        DELETE FROM $s.workflow_suspect
        WHERE topic = %(topic)s AND partition = %(partition)s AND log_offset = %(offset)s""",
    "standing": """
        SELECT epoch, marker, rows_to FROM $s.workflow_partition
        WHERE topic = %s AND partition = %s""",
    "move_marker": f"""
        UPDATE $s.workflow_partition
        SET marker = %(marker)s, decisions = %(decisions)s, digest = %(digest)s,
            counts = %(counts)s, activations = %(activations)s, saved = now(),
            takeovers = CASE WHEN marker < %(marker)s THEN 0 ELSE takeovers END,
            fence = CASE WHEN marker < %(marker)s THEN '' ELSE fence END,
            choice = CASE WHEN marker < %(marker)s THEN '' ELSE choice END
        WHERE {_MINE} AND marker = %(previous)s""",
    "move_rows": f"""
        UPDATE $s.workflow_partition SET rows_to = %(rows_to)s
        WHERE {_MINE} AND rows_to = %(previous)s""",
    # LEFT JOIN: epoch and marker come back even when no key has a row (P16).
    "load": """
        SELECT p.epoch, p.marker, n.*
        FROM $s.workflow_partition p
        LEFT JOIN LATERAL (
            SELECT s.* FROM unnest(%(tenants)s::text[], %(instances)s::text[]) k (tenant, instance)
            CROSS JOIN LATERAL (
                SELECT tenant, instance_id, version, definition, fingerprint, state, last_offset,
                       last_source, last_id, data, hash
                FROM $s.workflow_snapshot
                WHERE workflow = %(workflow)s AND partition = p.partition
                  AND tenant = k.tenant AND instance_id = k.instance
                ORDER BY version DESC LIMIT 1) s
        ) n ON true
        WHERE p.topic = %(topic)s AND p.partition = %(partition)s""",
    # In the order of `workflow_instance_due`; epoch and watermark come back in any case (P16).
    "due": """
        SELECT p.epoch, p.rows_to, n.*
        FROM $s.workflow_partition p
        LEFT JOIN LATERAL (
            SELECT (extract(epoch FROM due) * 1000)::bigint, tenant, instance_id, timers::text
            FROM $s.workflow_instance
            WHERE workflow = %(workflow)s AND partition = %(partition)s AND due IS NOT NULL
              AND (due, tenant, instance_id) > (to_timestamp(%(after_ms)s::numeric / 1000),
                                                %(after_tenant)s, %(after_instance)s)
              AND due <= to_timestamp(%(until_ms)s::numeric / 1000)
            ORDER BY due, tenant, instance_id LIMIT %(limit)s) n ON true
        WHERE p.topic = %(topic)s AND p.partition = %(partition)s""",
    "older": f"""
        SELECT {_SNAPSHOT} FROM $s.workflow_snapshot
        WHERE workflow = %s AND partition = %s AND tenant = %s AND instance_id = %s
          AND version < %s ORDER BY version DESC""",
    "snapshot_copy": f"""
        COPY $s.workflow_snapshot (workflow, partition, {_SNAPSHOT}) FROM STDIN (FORMAT BINARY)""",
    "snapshot_stage": """
        CREATE TEMP TABLE IF NOT EXISTS refold_stage_snapshot
            (LIKE $s.workflow_snapshot INCLUDING DEFAULTS) ON COMMIT DELETE ROWS""",
    "snapshot_stage_copy": f"""
        COPY refold_stage_snapshot (workflow, partition, {_SNAPSHOT})
        FROM STDIN (FORMAT BINARY)""",
    "snapshot_merge": """
        INSERT INTO $s.workflow_snapshot SELECT * FROM refold_stage_snapshot
        ON CONFLICT DO NOTHING""",
    "snapshot_unequal": """
        SELECT t.tenant, t.instance_id, t.version, s.data, s.hash
        FROM refold_stage_snapshot t
        JOIN $s.workflow_snapshot s USING (workflow, partition, tenant, instance_id, version)
        WHERE (s.data, s.hash, s.definition, s.fingerprint, s.state, s.last_offset) IS DISTINCT
         FROM (t.data, t.hash, t.definition, t.fingerprint, t.state, t.last_offset)""",
    "snapshot_heal": """
        UPDATE $s.workflow_snapshot s
        SET data = t.data, hash = t.hash, definition = t.definition,
            fingerprint = t.fingerprint, state = t.state, last_offset = t.last_offset,
            last_source = t.last_source, last_id = t.last_id, created = t.created
        FROM refold_stage_snapshot t
        WHERE (s.workflow, s.partition, s.tenant, s.instance_id, s.version)
            = (t.workflow, t.partition, t.tenant, t.instance_id, t.version)
          AND t.tenant = %s AND t.instance_id = %s AND t.version = %s""",
    "event_copy": f"COPY $s.workflow_event_log ({_EVENT}) FROM STDIN (FORMAT BINARY)",
    "event_stage": """
        CREATE TEMP TABLE IF NOT EXISTS refold_stage_event
            (LIKE $s.workflow_event_log INCLUDING DEFAULTS) ON COMMIT DELETE ROWS""",
    "event_stage_copy": f"COPY refold_stage_event ({_EVENT}) FROM STDIN (FORMAT BINARY)",
    # An event that was applied before, here or in this very batch, is marked and kept (P20).
    "event_merge": f"""
        INSERT INTO $s.workflow_event_log ({_EVENT}, doubled)
        SELECT {_EVENT}, verdict = 'applied' AND (turn > 1 OR EXISTS (
            SELECT FROM $s.workflow_event_log e
            WHERE e.id = t.id AND e.source = t.source AND e.instance_id = t.instance_id
              AND e.tenant = t.tenant AND e.topic_id = t.topic_id
              AND e.verdict = 'applied' AND NOT e.doubled))
        FROM (SELECT *, row_number() OVER (
                  PARTITION BY verdict, id, source, instance_id, tenant ORDER BY log_offset) turn
              FROM refold_stage_event) t
        WHERE NOT EXISTS (
            SELECT FROM $s.workflow_event_log e
            WHERE e.topic_id = t.topic_id AND e.partition = t.partition
              AND e.log_offset = t.log_offset)
        RETURNING log_offset, doubled""",
    "event_unequal": """
        SELECT t.log_offset
        FROM refold_stage_event t
        JOIN $s.workflow_event_log e USING (topic_id, partition, log_offset)
        WHERE (e.tenant, e.instance_id, e.source, e.id, e.type, e.log_time, e.verdict,
               e.transition, e.state_before, e.state_after, e.commands, e.code)
          IS DISTINCT FROM
              (t.tenant, t.instance_id, t.source, t.id, t.type, t.log_time, t.verdict,
               t.transition, t.state_before, t.state_after, t.commands, t.code)
        ORDER BY 1""",
    "resolve_event": """
        UPDATE $s.workflow_event_log
        SET resolution = %s, resolved_by = %s, resolution_code = %s, resolution_text = %s
        WHERE topic_id = %s AND partition = %s AND log_offset = %s""",
    "instance_stage": """
        CREATE TEMP TABLE IF NOT EXISTS refold_stage_instance
            (LIKE $s.workflow_instance) ON COMMIT DELETE ROWS""",
    "instance_stage_copy": f"COPY refold_stage_instance ({_INSTANCE}) FROM STDIN (FORMAT BINARY)",
    "instance_merge": f"""
        INSERT INTO $s.workflow_instance AS i ({_INSTANCE})
        SELECT {_INSTANCE} FROM refold_stage_instance
        ON CONFLICT (workflow, tenant, instance_id) DO UPDATE
        SET partition = excluded.partition, definition = excluded.definition,
            state = excluded.state, state_since = excluded.state_since,
            run_status = excluded.run_status, context = excluded.context, lossy = excluded.lossy,
            version = excluded.version, last_offset = excluded.last_offset,
            last_source = excluded.last_source, last_id = excluded.last_id, due = excluded.due,
            failure_code = excluded.failure_code, failure_text = excluded.failure_text,
            created = excluded.created, updated = excluded.updated,
            timers = excluded.timers, actions = excluded.actions
        WHERE i.last_offset < excluded.last_offset""",
    "prunable": """
        SELECT k.tenant, k.instance, n.version, n.data, n.hash
        FROM unnest(%(tenants)s::text[], %(instances)s::text[]) k (tenant, instance)
        CROSS JOIN LATERAL (
            SELECT version, data, hash FROM $s.workflow_snapshot
            WHERE workflow = %(workflow)s AND partition = %(partition)s
              AND tenant = k.tenant AND instance_id = k.instance
            ORDER BY version DESC LIMIT 1) n
        WHERE EXISTS (
            SELECT FROM $s.workflow_snapshot
            WHERE workflow = %(workflow)s AND partition = %(partition)s
              AND tenant = k.tenant AND instance_id = k.instance
            ORDER BY version DESC LIMIT 1 OFFSET %(keep)s)""",
    "prune": """
        DELETE FROM $s.workflow_snapshot WHERE ctid = ANY (ARRAY (
            SELECT old.place
            FROM $s.workflow_partition p
            CROSS JOIN unnest(%(tenants)s::text[], %(instances)s::text[], %(versions)s::int[])
                       k (tenant, instance, version)
            CROSS JOIN LATERAL (
                SELECT ctid AS place, version, last_offset FROM $s.workflow_snapshot
                WHERE workflow = %(workflow)s AND partition = p.partition
                  AND tenant = k.tenant AND instance_id = k.instance AND version <= k.version
                ORDER BY version DESC OFFSET %(keep)s) old
            WHERE p.topic = %(topic)s AND p.partition = %(partition)s
              AND (old.last_offset >= p.base OR EXISTS (
                SELECT FROM $s.workflow_snapshot b
                WHERE b.workflow = %(workflow)s AND b.partition = p.partition
                  AND b.tenant = k.tenant AND b.instance_id = k.instance
                  AND b.version > old.version AND b.last_offset < p.base))))""",
    "hashes": """
        SELECT DISTINCT ON (tenant, instance_id)
               tenant, instance_id, version, hash, last_offset, data
        FROM $s.workflow_snapshot
        WHERE workflow = %s AND partition = %s AND last_offset < %s
        ORDER BY tenant, instance_id, version DESC""",
    "versions": f"""
        SELECT {_SNAPSHOT} FROM $s.workflow_snapshot
        WHERE workflow = %s
          AND partition IN (SELECT partition FROM $s.workflow_partition WHERE workflow = %s)
          AND tenant = %s AND instance_id = %s
        ORDER BY version DESC""",
    # What still waits for a person or for its state stays, however old.
    "thin_events": """
        DELETE FROM $s.workflow_event_log WHERE ctid = ANY (ARRAY (
            SELECT ctid FROM $s.workflow_event_log
            WHERE workflow = %s AND log_time < to_timestamp(%s)
              AND (resolution IS NOT NULL OR verdict NOT IN ('parked', 'deferred'))
            LIMIT %s))""",
    "thin_instances": """
        DELETE FROM $s.workflow_instance WHERE ctid = ANY (ARRAY (
            SELECT ctid FROM $s.workflow_instance
            WHERE workflow = %s AND updated < to_timestamp(%s)
              AND run_status IN
                  ('completed', 'failed', 'compensated', 'terminated', 'continued')
            LIMIT %s))""",
    "replace_row": f"""
        UPDATE $s.workflow_partition
        SET topic_id = %(topic_id)s, partitions = %(partitions)s, consumer_group = %(group)s,
            marker = %(marker)s, rows_to = %(rows_to)s, decisions = %(decisions)s,
            digest = %(digest)s, counts = %(counts)s, base = %(base)s, takeovers = 0,
            activations = %(activations)s, fence = '', choice = '', saved = now()
        WHERE {_MINE}""",
    "restart": f"""
        UPDATE $s.workflow_partition
        SET topic_id = %(topic_id)s, partitions = %(partitions)s, marker = %(marker)s,
            rows_to = %(rows_to)s, decisions = %(decisions)s, digest = %(digest)s,
            counts = %(counts)s, activations = %(activations)s, base = %(base)s, fence = ''
        WHERE {_MINE}""",
    "drop_snapshots": "DELETE FROM $s.workflow_snapshot WHERE workflow = %s AND partition = %s",
    "drop_instances": "DELETE FROM $s.workflow_instance WHERE workflow = %s AND partition = %s",
    "drop_events": "DELETE FROM $s.workflow_event_log WHERE workflow = %s AND partition = %s",
    "register": """
        INSERT INTO $s.workflow_definition (workflow, version, fingerprint, canonical)
        VALUES (%(workflow)s, %(version)s, %(fingerprint)s, %(canonical)s)
        ON CONFLICT DO NOTHING""",
    "fingerprint": """
        SELECT fingerprint FROM $s.workflow_definition
        WHERE workflow = %(workflow)s AND version = %(version)s""",
    "accept": """
        INSERT INTO $s.workflow_definition (workflow, version, fingerprint, canonical)
        VALUES (%(workflow)s, %(version)s, %(fingerprint)s, %(canonical)s)
        ON CONFLICT (workflow, version) DO UPDATE
        SET fingerprint = excluded.fingerprint, canonical = excluded.canonical""",
    "retire": """
        UPDATE $s.workflow_definition SET state = 'retired' WHERE workflow = %s AND version = %s""",
    "activate": """
        INSERT INTO $s.workflow_activation (workflow, version, who, reason)
        SELECT workflow, version, %(who)s, %(reason)s FROM $s.workflow_definition
        WHERE workflow = %(workflow)s AND version = %(version)s""",
    "wanted": """
        SELECT version FROM $s.workflow_activation
        WHERE workflow = %s ORDER BY number DESC LIMIT 1""",
    "definitions": """
        SELECT workflow, version, fingerprint, canonical, state FROM $s.workflow_definition
        WHERE workflow = %s ORDER BY version""",
    "versions_in_use": """
        SELECT definition, count(*) FROM $s.workflow_instance
        WHERE workflow = %s AND run_status NOT IN
              ('completed', 'failed', 'compensated', 'terminated', 'continued')
        GROUP BY definition ORDER BY definition""",
    "versions_known": """
        SELECT definition, count(*) FROM $s.workflow_instance
        WHERE workflow = %s GROUP BY definition ORDER BY definition""",
    "jsonb_probe": "SELECT %s::jsonb",
}


def statements(schema: str) -> dict[str, bytes]:
    """Every statement of the store for one schema, by name.

    Raises:
        UsageError: BAD_SETTING for a name that could not stand in SQL.
    """
    name = schema_name(schema)
    return {key: Template(text).substitute(s=name).encode() for key, text in _TEXTS.items()}
