"""The SQL of the ledger, one dictionary a schema.

Law of this module: text only; values are parameters, the schema's name is checked before it gets
here. Rows travel as arrays, so that a batch is one statement.
"""

from collections.abc import Mapping
from functools import cache
from string import Template
from typing import Final

from refold.snapshots.migrate import schema_name

_ROW: Final = """a.key, a.tenant, a.workflow, a.instance_id, a.state, a.action, a.direction,
       a.type, a.request, a.attempt, a.epoch, a.reply_to, a.trace, due.status,
       coalesce(extract(epoch FROM now() - due.dispatched), 0)::float8,
       coalesce(extract(epoch FROM now() - due.first_sent), 0)::float8, due.lost, due.undoes"""
_FORWARD: Final = "left(c.key, -length('compensate')) || 'forward'"

_TEXT: Final[Mapping[str, str]] = {
    # A key that stands is left as it is, but for a failed one that is tried again (P30). What
    # holds a slot is born in flight, where no earlier command of its instance is undecided.
    "plan": """
        WITH c AS (
            SELECT DISTINCT ON (key) * FROM unnest(%(key)s::text[], %(tenant)s::text[],
                %(workflow)s::text[], %(instance)s::text[], %(state)s::text[], %(action)s::text[],
                %(direction)s::text[], %(target)s::text[], %(target_system)s::text[],
                %(truth)s::text[], %(type)s::text[], %(request)s::bytea[],
                %(request_hash)s::bytea[], %(attempt)s::int[], %(reply_to)s::text[],
                %(trace)s::text[], %(partition)s::int[], %(offset)s::bigint[],
                %(independent)s::bool[], %(lease_s)s::float8[])
                AS c (key, tenant, workflow, instance_id, state, action, direction, target,
                      target_system, truth, type, request, request_hash, attempt, reply_to, trace,
                      partition, log_offset, independent, lease_s)
            ORDER BY key, attempt DESC),
        judged AS (
            SELECT c.*, c.lease_s > 0 AND c.direction = 'forward' AND (
                c.independent OR NOT EXISTS (
                    SELECT FROM $s.workflow_action e
                    WHERE e.instance_id = c.instance_id AND e.workflow = c.workflow
                      AND e.tenant = c.tenant AND e.status IN ('planned', 'in_flight'))) AS begins
            FROM c),
        written AS (
            INSERT INTO $s.workflow_action AS a (key, tenant, workflow, instance_id, state, action,
                direction, target, target_system, truth, type, request, request_hash, attempt,
                reply_to, trace, partition, log_offset, independent, status, epoch, worker,
                lease_until, dispatched, first_sent)
            SELECT key, tenant, workflow, instance_id, state, action, direction, target,
                target_system, truth, type, request, request_hash, attempt, reply_to, trace,
                partition, log_offset, independent,
                CASE WHEN begins THEN 'in_flight' ELSE %(status)s END,
                begins::int, CASE WHEN begins THEN %(worker)s ELSE '' END,
                CASE WHEN begins THEN now() + lease_s * interval '1 second' END,
                CASE WHEN begins OR %(status)s = 'unknown' THEN now() END,
                CASE WHEN begins OR %(status)s = 'unknown' THEN now() END
            FROM judged
            ON CONFLICT (key) DO UPDATE SET
                attempt = excluded.attempt, status = excluded.status, worker = excluded.worker,
                epoch = a.epoch + excluded.epoch, lease_until = excluded.lease_until,
                dispatched = coalesce(excluded.dispatched, a.dispatched),
                first_sent = coalesce(a.first_sent, excluded.first_sent),
                partition = excluded.partition, log_offset = excluded.log_offset,
                planned = now(), not_before = now()
            WHERE a.status = 'failed' AND excluded.attempt > a.attempt
              AND excluded.request_hash = a.request_hash
            RETURNING a.key, a.status, a.epoch)
        SELECT key, epoch FROM written WHERE status = 'in_flight' AND %(status)s = 'planned'""",
    # Commands that came again for what has ended: the answer goes out once more.
    "repeat": """
        INSERT INTO $s.workflow_result (key, topic, instance, tenant, event_id, type, value,
                                        attempt, outcome, trace, later)
        SELECT a.key, a.reply_to, a.instance_id, a.tenant, a.result_event, a.result_type, a.result,
               a.attempt, a.result_outcome, a.trace, true
        FROM $s.workflow_action a
        JOIN unnest(%(key)s::text[], %(attempt)s::int[], %(request_hash)s::bytea[])
             AS c (key, attempt, hash) ON c.key = a.key AND c.hash = a.request_hash
        WHERE a.result_event <> '' AND a.result IS NOT NULL
          AND (a.status = 'succeeded' OR (a.status = 'failed' AND a.attempt = c.attempt))
        ON CONFLICT (event_id) DO NOTHING""",
    "clashes": """
        SELECT a.key FROM $s.workflow_action a
        JOIN unnest(%(key)s::text[], %(request_hash)s::bytea[]) AS c (key, hash) ON c.key = a.key
        WHERE a.request_hash <> c.hash AND a.status <> 'cancelled'""",
    "reject": """
        INSERT INTO $s.workflow_rejected (topic, partition, log_offset, record_key, headers, value,
                                          code, reason)
        VALUES (%(topic)s, %(partition)s, %(offset)s, %(record_key)s, %(headers)s, %(value)s,
                %(code)s, %(text)s)
        ON CONFLICT DO NOTHING""",
    "intake": """
        INSERT INTO $s.workflow_intake AS i (topic, partition, topic_id, position)
        VALUES (%(topic)s, %(partition)s, %(topic_id)s, %(position)s)
        ON CONFLICT (topic, partition) DO UPDATE
        SET topic_id = excluded.topic_id, position = excluded.position
        WHERE excluded.topic_id <> i.topic_id OR excluded.position > i.position""",
    "position": """
        SELECT topic_id, position FROM $s.workflow_intake WHERE topic = %s AND partition = %s""",
    "undoing": """
        SELECT EXISTS (SELECT FROM $s.workflow_action
                       WHERE target = %(target)s AND status = 'planned'
                         AND direction = 'compensate')""",
    # What is to be undone and has not begun never begins, whenever its command comes (P33).
    "cancel": f"""
        INSERT INTO $s.workflow_action AS a (key, tenant, workflow, instance_id, state, action,
            direction, target, target_system, truth, type, request, request_hash, attempt, status,
            reply_to, trace, partition, log_offset, recorded, reason)
        SELECT {_FORWARD}, tenant, workflow, instance_id, state, action, 'forward', target,
            target_system, truth, '', '', '', 1, 'cancelled', reply_to, trace, partition,
            log_offset, now(), 'its compensation came first'
        FROM $s.workflow_action c
        WHERE target = %(target)s AND status = 'planned' AND direction = 'compensate'
        ON CONFLICT (key) DO UPDATE
        SET status = 'cancelled', recorded = now(), reason = excluded.reason
        WHERE a.status = 'planned'""",
    # In the order of the log; an instance's next waits until its earlier ones are decided, and a
    # compensation until it is known what became of what it undoes.
    "claim": f"""
        WITH due AS (
            SELECT c.key, c.status, c.dispatched, c.first_sent, c.lost, f.status AS undoes
            FROM $s.workflow_action c
            LEFT JOIN $s.workflow_action f ON c.direction = 'compensate' AND f.key = {_FORWARD}
            WHERE c.target = %(target)s AND c.status = 'planned' AND c.not_before <= now()
              AND c.type = %(type)s
              AND (f.key IS NULL OR f.status IN ('succeeded', 'failed', 'cancelled'))
              AND (c.independent OR NOT EXISTS (
                SELECT FROM $s.workflow_action e
                WHERE e.instance_id = c.instance_id AND e.workflow = c.workflow
                  AND e.tenant = c.tenant AND e.status IN ('planned', 'in_flight')
                  AND e.partition = c.partition AND e.log_offset < c.log_offset))
            ORDER BY c.planned, c.log_offset
            LIMIT %(most)s
            FOR UPDATE OF c SKIP LOCKED)
        UPDATE $s.workflow_action a
        SET status = 'in_flight', epoch = epoch + 1, worker = %(worker)s, dispatched = now(),
            first_sent = coalesce(a.first_sent, now()), lost = false,
            lease_until = now() + %(lease_s)s * interval '1 second'
        FROM due WHERE a.key = due.key
        RETURNING {_ROW}""",
    # Unknown ones that may be called again under the same key.
    "recall": f"""
        WITH due AS (
            SELECT key, status, dispatched, first_sent, lost, '' AS undoes
            FROM $s.workflow_action
            WHERE target = %(target)s AND status = 'unknown' AND type = %(type)s
              AND not_before <= now()
              AND first_sent > now() - %(horizon_s)s * interval '1 second'
            ORDER BY not_before LIMIT %(most)s
            FOR UPDATE SKIP LOCKED)
        UPDATE $s.workflow_action a
        SET status = 'in_flight', epoch = epoch + 1, worker = %(worker)s, dispatched = now(),
            lost = false, lease_until = now() + %(lease_s)s * interval '1 second'
        FROM due WHERE a.key = due.key
        RETURNING {_ROW}""",
    # A question is no call: the epoch stays, and a late answer of the call still counts.
    "ask": f"""
        WITH due AS (
            SELECT key, status, dispatched, first_sent, lost, '' AS undoes
            FROM $s.workflow_action
            WHERE target = %(target)s AND status = 'unknown' AND type = ANY (%(types)s)
              AND not_before <= now() + (CASE WHEN %(eager)s THEN interval '5 minutes'
                                              ELSE interval '0' END)
            ORDER BY not_before LIMIT %(most)s
            FOR UPDATE SKIP LOCKED)
        UPDATE $s.workflow_action a
        SET not_before = now() + %(hold_s)s * interval '1 second'
        FROM due WHERE a.key = due.key
        RETURNING {_ROW}""",
    # Whoever held these has died or hangs: what it did is not known. A local action's transaction
    # has certainly not been committed, for it would have settled the row.
    "run_out": """
        WITH out AS (
            SELECT key FROM $s.workflow_action
            WHERE target = %(target)s AND status = 'in_flight' AND lease_until < now()
            LIMIT %(most)s FOR UPDATE SKIP LOCKED)
        UPDATE $s.workflow_action a
        SET status = CASE WHEN truth = 'local' THEN 'planned' ELSE 'unknown' END,
            lost = reference = '', recorded = now(), lease_until = NULL, not_before = now(),
            reason = CASE WHEN reference = '' THEN 'the lease ran out: its process died or hangs'
                          ELSE 'accepted, and not answered in time' END
        FROM out WHERE a.key = out.key
        RETURNING a.key, a.reply_to, a.instance_id, a.tenant, a.attempt, a.trace, a.status,
                  a.reason""",
    "renew": """
        UPDATE $s.workflow_action a
        SET lease_until = now() + o.lease_s * interval '1 second'
        FROM unnest(%(key)s::text[], %(epoch)s::int[], %(lease_s)s::float8[])
             AS o (key, epoch, lease_s)
        WHERE a.key = o.key AND a.epoch = o.epoch AND a.status = 'in_flight'
        RETURNING a.key""",
    # The claim's own answer, or any word that settles what is still unknown (P30).
    "settle": """
        WITH o AS (
            SELECT * FROM unnest(%(key)s::text[], %(epoch)s::int[], %(attempt)s::int[],
                %(status)s::text[], %(outcome)s::text[], %(already)s::bool[], %(type)s::text[],
                %(value)s::bytea[], %(event_id)s::text[], %(reason)s::text[],
                %(retry_after_s)s::float8[], %(reference)s::text[], %(until_s)s::float8[])
                AS o (key, epoch, attempt, status, outcome, already, type, value, event_id, reason,
                      retry_after_s, reference, until_s)),
        gone AS (DELETE FROM $s.workflow_result WHERE event_id = ANY (%(published)s::text[])),
        settled AS (
            UPDATE $s.workflow_action a
            SET status = o.status, already = o.already, result_type = o.type, result = o.value,
                result_event = o.event_id, result_outcome = o.outcome, reason = o.reason,
                recorded = now(),
                lease_until = CASE WHEN o.status = 'in_flight'
                                   THEN now() + o.until_s * interval '1 second' END,
                reference = CASE WHEN o.reference = '' THEN a.reference ELSE o.reference END,
                not_before = now() + o.retry_after_s * interval '1 second',
                attempts = CASE WHEN a.status = 'unknown' AND o.status = 'unknown' THEN a.attempts
                    ELSE a.attempts || jsonb_build_object('epoch', o.epoch, 'attempt', o.attempt,
                        'worker', a.worker, 'began', a.dispatched, 'ended', now(),
                        'outcome', o.status, 'reason', o.reason) END
            FROM o
            WHERE a.key = o.key AND a.status IN ('in_flight', 'unknown') AND (
                a.epoch = o.epoch
                OR (a.status = 'unknown' AND o.status = 'succeeded')
                OR (a.status = 'in_flight' AND o.status = 'succeeded' AND a.epoch > o.epoch))
            RETURNING a.key, a.reply_to, a.instance_id, a.tenant, a.trace),
        held AS (
            SELECT s.key, o.event_id <> '' AND EXISTS (
                SELECT FROM $s.workflow_result r
                WHERE r.topic = s.reply_to AND r.instance = s.instance_id
                  AND r.event_id <> ALL (%(published)s::text[])) AS later
            FROM settled s JOIN o ON o.key = s.key),
        told AS (
            INSERT INTO $s.workflow_result (key, topic, instance, tenant, event_id, type, value,
                                            attempt, outcome, trace, later)
            SELECT s.key, s.reply_to, s.instance_id, s.tenant, o.event_id, o.type, o.value,
                   o.attempt, o.outcome, s.trace, h.later
            FROM settled s JOIN o ON o.key = s.key JOIN held h ON h.key = s.key
            WHERE o.event_id <> ''
            ON CONFLICT (event_id) DO NOTHING)
        SELECT key, later FROM held""",
    # Said too late, or against what stands: kept, and not told.
    "contradict": """
        UPDATE $s.workflow_action a
        SET attempts = a.attempts || jsonb_build_object('epoch', o.epoch, 'attempt', o.attempt,
                'ended', now(), 'outcome', o.status, 'reason', o.reason, 'late', true)
        FROM unnest(%(key)s::text[], %(epoch)s::int[], %(attempt)s::int[], %(status)s::text[],
                    %(reason)s::text[]) AS o (key, epoch, attempt, status, reason)
        WHERE a.key = o.key AND jsonb_array_length(a.attempts) < 100""",
    "tell": """
        INSERT INTO $s.workflow_result (key, topic, instance, tenant, event_id, type, value,
                                        attempt, outcome, trace, later)
        SELECT *, true FROM unnest(%(key)s::text[], %(topic)s::text[], %(instance)s::text[],
            %(tenant)s::text[], %(event_id)s::text[], %(type)s::text[], %(value)s::bytea[],
            %(attempt)s::int[], %(outcome)s::text[], %(trace)s::text[])
        ON CONFLICT (event_id) DO NOTHING""",
    "lock": """
        SELECT FROM $s.workflow_action
        WHERE key = %(key)s AND epoch = %(epoch)s AND status = 'in_flight' FOR UPDATE""",
    # All of an instance that has something left, in order.
    "results": """
        SELECT r.key, r.topic, r.instance, r.tenant, r.event_id, r.type, r.value, r.attempt,
               r.outcome, r.trace
        FROM $s.workflow_result r
        WHERE (r.topic, r.instance) IN (
            SELECT topic, instance FROM $s.workflow_result
            WHERE later OR recorded < now() - %(age_s)s * interval '1 second')
        ORDER BY r.id LIMIT %(most)s""",
    "published": "DELETE FROM $s.workflow_result WHERE event_id = ANY (%(ids)s::text[])",
    "standing": """
        SELECT count(*) FILTER (WHERE status = 'planned'),
               count(*) FILTER (WHERE status = 'in_flight'),
               count(*) FILTER (WHERE status = 'unknown'),
               count(*) FILTER (WHERE status <> 'planned' AND reference = ''
                   AND dispatched < now() - %(stuck_s)s * interval '1 second'),
               coalesce(extract(epoch FROM now()
                   - min(planned) FILTER (WHERE status = 'planned')), 0)::float8,
               coalesce(extract(epoch FROM now()
                   - min(dispatched) FILTER (WHERE status = 'unknown')), 0)::float8
        FROM $s.workflow_action
        WHERE target = %(target)s AND status IN ('planned', 'in_flight', 'unknown')""",
    "scanned": """
        INSERT INTO $s.workflow_scanner (worker, target, scanned)
        VALUES (%(worker)s, %(target)s, now())
        ON CONFLICT (worker) DO UPDATE SET scanned = now()""",
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
