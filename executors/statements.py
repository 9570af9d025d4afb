"""The SQL of the ledger, one dictionary a schema.

Law of this module: text only; values are parameters, the schema's name is checked before it gets
here. Rows travel as arrays, so that a batch is one statement.
"""

from collections.abc import Mapping
from functools import cache
from string import Template
from typing import Final

from refold.snapshots.migrate import schema_name

_TEXT: Final[Mapping[str, str]] = {
    # A key that stands with another request is left alone and given back by `clashes`.
    "plan": """
        INSERT INTO $s.workflow_action AS a (key, tenant, workflow, instance_id, state, action,
            direction, target, target_system, truth, type, request, request_hash, attempt,
            reply_to, trace, partition, log_offset, status)
        SELECT DISTINCT ON (key) *, %(status)s FROM unnest(%(key)s::text[], %(tenant)s::text[],
            %(workflow)s::text[], %(instance)s::text[], %(state)s::text[], %(action)s::text[],
            %(direction)s::text[], %(target)s::text[], %(target_system)s::text[],
            %(truth)s::text[], %(type)s::text[], %(request)s::bytea[], %(request_hash)s::bytea[],
            %(attempt)s::int[], %(reply_to)s::text[], %(trace)s::text[], %(partition)s::int[],
            %(offset)s::bigint[])
            AS c (key, tenant, workflow, instance_id, state, action, direction, target,
                  target_system, truth, type, request, request_hash, attempt, reply_to, trace,
                  partition, log_offset)
        ORDER BY key, attempt DESC
        ON CONFLICT (key) DO UPDATE SET
            attempt = excluded.attempt,
            status = CASE a.status WHEN 'failed' THEN 'planned' ELSE a.status END,
            not_before = now()
        WHERE excluded.attempt > a.attempt AND excluded.request_hash = a.request_hash""",
    # Commands that came again for what has succeeded: the answer goes out once more.
    "repeat": """
        INSERT INTO $s.workflow_result (key, topic, instance, tenant, event_id, type, value, trace)
        SELECT a.key, a.reply_to, a.instance_id, a.tenant, a.result_event, a.result_type, a.result,
               a.trace
        FROM $s.workflow_action a JOIN unnest(%(key)s::text[]) k ON k = a.key
        WHERE a.status = 'succeeded'
        ON CONFLICT (event_id) DO NOTHING""",
    "clashes": """
        SELECT a.key FROM $s.workflow_action a
        JOIN unnest(%(key)s::text[], %(request_hash)s::bytea[]) AS c (key, hash) ON c.key = a.key
        WHERE a.request_hash <> c.hash""",
    "intake": """
        INSERT INTO $s.workflow_intake AS i (topic, partition, topic_id, position)
        VALUES (%(topic)s, %(partition)s, %(topic_id)s, %(position)s)
        ON CONFLICT (topic, partition) DO UPDATE
        SET topic_id = excluded.topic_id, position = excluded.position
        WHERE excluded.topic_id <> i.topic_id OR excluded.position > i.position""",
    "position": "SELECT position FROM $s.workflow_intake WHERE topic = %s AND partition = %s",
    # In the order of the log; an instance's next waits until its earlier ones are decided.
    "claim": """
        WITH due AS (
            SELECT key, status FROM $s.workflow_action c
            WHERE target = %(target)s AND status = 'planned' AND not_before <= now()
              AND (type = ANY (%(independent)s) OR NOT EXISTS (
                SELECT FROM $s.workflow_action e
                WHERE e.workflow = c.workflow AND e.tenant = c.tenant
                  AND e.instance_id = c.instance_id AND e.partition = c.partition
                  AND e.log_offset < c.log_offset AND e.status IN ('planned', 'in_flight')))
            ORDER BY planned, log_offset
            LIMIT %(most)s
            FOR UPDATE SKIP LOCKED)
        UPDATE $s.workflow_action a
        SET status = 'in_flight', epoch = epoch + 1, worker = %(worker)s, dispatched = now(),
            lease_until = now() + %(lease_s)s * interval '1 second'
        FROM due WHERE a.key = due.key
        RETURNING a.key, a.tenant, a.workflow, a.instance_id, a.state, a.action, a.direction,
                  a.type, a.request, a.attempt, a.epoch, a.reply_to, a.trace,
                  0.0::float8, due.status""",
    # Whoever held these has died or hangs: what it did is not known.
    "run_out": """
        UPDATE $s.workflow_action SET status = 'unknown', recorded = now(),
               reason = 'the lease ran out: the worker died or hangs'
        WHERE key IN (
            SELECT key FROM $s.workflow_action
            WHERE target = %(target)s AND status = 'in_flight' AND lease_until < now()
            LIMIT %(most)s FOR UPDATE SKIP LOCKED)
        RETURNING key, attempt, reply_to, instance_id, tenant, trace""",
    # Unknown ones that may be asked about: the other side has had time to show what it did.
    "ask": """
        WITH due AS (
            SELECT key, status FROM $s.workflow_action
            WHERE target = %(target)s AND status = 'unknown' AND type = ANY (%(types)s)
              AND not_before <= now()
            ORDER BY recorded LIMIT %(most)s
            FOR UPDATE SKIP LOCKED)
        UPDATE $s.workflow_action a
        SET epoch = epoch + 1, worker = %(worker)s,
            not_before = now() + %(lease_s)s * interval '1 second'
        FROM due WHERE a.key = due.key
        RETURNING a.key, a.tenant, a.workflow, a.instance_id, a.state, a.action, a.direction,
                  a.type, a.request, a.attempt, a.epoch, a.reply_to, a.trace,
                  extract(epoch FROM now() - a.dispatched)::float8, due.status""",
    # The claim's own answer, or any answer for what is still unknown.
    "settle": """
        UPDATE $s.workflow_action a
        SET status = CASE WHEN o.status = 'planned' THEN 'planned' ELSE o.status END,
            already = o.already, result_type = o.type, result = o.value,
            result_event = o.event_id, reason = o.reason, recorded = now(), lease_until = NULL,
            not_before = now() + o.retry_after_s * interval '1 second'
        FROM unnest(%(key)s::text[], %(epoch)s::int[], %(status)s::text[], %(already)s::bool[],
                    %(type)s::text[], %(value)s::bytea[], %(event_id)s::text[],
                    %(reason)s::text[], %(retry_after_s)s::float8[])
             AS o (key, epoch, status, already, type, value, event_id, reason, retry_after_s)
        WHERE a.key = o.key
          AND ((a.status = 'in_flight' AND a.epoch = o.epoch) OR a.status = 'unknown')
        RETURNING a.key, o.status, o.event_id""",
    "attempts": """
        INSERT INTO $s.workflow_attempt (key, epoch, attempt, worker, began, ended, outcome, reason)
        SELECT o.key, o.epoch, a.attempt, %(worker)s, coalesce(a.dispatched, now()), now(),
               o.status, o.reason
        FROM unnest(%(key)s::text[], %(epoch)s::int[], %(status)s::text[], %(reason)s::text[])
             AS o (key, epoch, status, reason)
        JOIN $s.workflow_action a ON a.key = o.key
        ON CONFLICT (key, epoch) DO UPDATE
        SET outcome = excluded.outcome, reason = excluded.reason, ended = excluded.ended""",
    "answer": """
        INSERT INTO $s.workflow_result (key, topic, instance, tenant, event_id, type, value, trace)
        SELECT a.key, a.reply_to, a.instance_id, a.tenant, o.event_id, o.type, o.value, a.trace
        FROM unnest(%(key)s::text[], %(event_id)s::text[], %(type)s::text[], %(value)s::bytea[])
             AS o (key, event_id, type, value)
        JOIN $s.workflow_action a ON a.key = o.key
        WHERE o.event_id <> ''
        ON CONFLICT (event_id) DO NOTHING""",
    "results": """
        SELECT id, key, topic, instance, tenant, event_id, type, value, trace
        FROM $s.workflow_result WHERE id > %(after)s ORDER BY id LIMIT %(most)s""",
    "published": "DELETE FROM $s.workflow_result WHERE id = ANY (%(ids)s::bigint[])",
    "list": """
        SELECT key, tenant, workflow, instance_id, action, direction, target_system, truth,
               attempt, status, reason, planned, dispatched, recorded
        FROM $s.workflow_action
        WHERE (%(status)s::text IS NULL OR status = %(status)s) AND key > %(after)s
        ORDER BY key LIMIT %(most)s""",
}


@cache
def statements(schema: str) -> Mapping[str, bytes]:
    """The statements by name."""
    name = schema_name(schema)
    return {key: Template(text).substitute(s=name).encode() for key, text in _TEXT.items()}
