"""The SQL of the ledger, one dictionary a schema.

Law of this module: text only; values are parameters, the schema's name is checked before it gets
here. Rows travel as arrays, so that a batch is one statement.
"""

from collections.abc import Mapping
from functools import cache
from string import Template
from typing import Final

from refold.snapshots.migrate import schema_name

SCHEMA: Final = "refold_ledger"
"""Default schema of the ledger's tables."""
_ROW: Final = """a.key, a.tenant, a.workflow, a.instance_id, a.state, a.action, a.direction,
       a.type, a.request, a.attempt, a.epoch, a.reply_to, a.trace, due.status,
       coalesce(extract(epoch FROM now() - due.dispatched), 0)::float8,
       coalesce(extract(epoch FROM now() - due.first_sent), 0)::float8, due.lost,
       (SELECT f.result_type FROM $s.workflow_action f WHERE a.direction = 'compensate'
        AND f.key = left(a.key, -length('compensate')) || 'forward' AND f.status = 'succeeded'),
       (SELECT f.result FROM $s.workflow_action f WHERE a.direction = 'compensate'
        AND f.key = left(a.key, -length('compensate')) || 'forward' AND f.status = 'succeeded')"""
_DUE: Final = """not_before <= now() + (CASE WHEN %(eager)s THEN interval '5 minutes'
                                              ELSE interval '0' END)"""
_HOLD: Final = f"""UPDATE $s.workflow_action a
        SET not_before = now() + %(hold_s)s * interval '1 second'
        FROM due WHERE a.key = due.key
        RETURNING {_ROW}"""
"""Nobody else asks about what was taken, for a while."""
_TOLD: Final = "a.key, a.reply_to, a.instance_id, a.tenant, a.attempt, a.trace"
"""What the event about a row is made of."""
_FORWARD: Final = "left(c.key, -length('compensate')) || 'forward'"
UNDONE: Final = """EXISTS (
    SELECT FROM $s.workflow_action b
    WHERE a.direction = 'forward'
      AND b.key = left(a.key, -length('forward')) || 'compensate')"""
"""Its undoing has been asked for: no other attempt of it may begin."""
NEXT: Final = f"""status = CASE WHEN o.status = 'failed' AND a.wanted > a.attempt
                              AND NOT {UNDONE} THEN 'planned' ELSE o.status END,
                attempt = CASE WHEN o.status = 'failed' AND NOT {UNDONE} THEN a.wanted
                               ELSE a.attempt END"""
"""What a row becomes by what is said of it: the attempt that waited for a failure begins (P31)."""
RESULT: Final = """INSERT INTO $s.workflow_result (key, topic, instance, tenant, event_id, type,
                                                  value, attempt, outcome, trace, later)"""

_TEXT: Final[Mapping[str, str]] = {
    # What holds a slot is born in flight, where no earlier command of its instance is undecided.
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
            ORDER BY key, attempt DESC, log_offset),
        judged AS MATERIALIZED (
            SELECT c.*, c.lease_s > 0 AND c.direction = 'forward'
                        AND (c.independent OR e.busy IS NULL) AS begins
            FROM c LEFT JOIN LATERAL (
                SELECT true AS busy FROM $s.workflow_action e
                WHERE e.instance_id = c.instance_id AND e.workflow = c.workflow
                  AND e.tenant = c.tenant AND e.target = c.target AND NOT e.independent
                  AND e.status IN ('planned', 'in_flight') LIMIT 1) e ON true),
        written AS (
            INSERT INTO $s.workflow_action AS a (key, tenant, workflow, instance_id, state, action,
                direction, target, target_system, truth, type, request, request_hash, attempt,
                wanted, reply_to, trace, partition, log_offset, independent, status, epoch, worker,
                lease_until, dispatched, first_sent, attempts)
            SELECT key, tenant, workflow, instance_id, state, action, direction, target,
                target_system, truth, type, request, request_hash, attempt, attempt, reply_to,
                trace, partition, log_offset, independent,
                CASE WHEN begins THEN 'in_flight' ELSE %(status)s END,
                begins::int, CASE WHEN begins THEN %(worker)s ELSE '' END,
                CASE WHEN begins THEN now() + lease_s * interval '1 second' END,
                CASE WHEN begins OR %(status)s = 'unknown' THEN now() END,
                CASE WHEN begins OR %(status)s = 'unknown' THEN now() END,
                CASE WHEN %(status)s <> 'unknown' THEN '[]'
                     ELSE jsonb_build_array(jsonb_build_object('epoch', 0, 'attempt', attempt,
                         'ended', now(), 'outcome', 'unknown', 'reason', 'forgotten')) END
            FROM judged
            ON CONFLICT (key) DO NOTHING
            RETURNING key, status, epoch)
        SELECT key, status, epoch FROM written""",
    # A higher attempt of what has failed is planned; of what is not settled it is remembered
    # (P30, P31). Where the opposite of "failed" was said too, nobody knows: no call by itself.
    "replan": f"""
        UPDATE $s.workflow_action a SET
            wanted = c.attempt,
            attempt = CASE WHEN a.status IN ('failed', 'planned') THEN c.attempt
                           ELSE a.attempt END,
            status = CASE WHEN a.status <> 'failed' THEN a.status
                          WHEN a.contradicted THEN 'unknown' ELSE %(status)s END,
            partition = CASE WHEN a.status = 'failed' THEN c.partition ELSE a.partition END,
            log_offset = CASE WHEN a.status = 'failed' THEN c.log_offset ELSE a.log_offset END,
            not_before = CASE WHEN a.status = 'failed' THEN now() ELSE a.not_before END,
            lost = a.lost AND a.status <> 'failed',
            reference = CASE WHEN a.status = 'failed' THEN '' ELSE a.reference END
        FROM (SELECT DISTINCT ON (key) * FROM unnest(%(key)s::text[], %(attempt)s::int[],
                  %(request_hash)s::bytea[], %(partition)s::int[], %(offset)s::bigint[])
                  AS c (key, attempt, hash, partition, log_offset)
              ORDER BY key, attempt DESC) c
        WHERE a.key = c.key AND a.request_hash = c.hash AND c.attempt > a.wanted
          AND a.status IN ('planned', 'in_flight', 'unknown', 'failed')
          AND NOT {UNDONE}
        RETURNING {_TOLD}, a.status = 'unknown' AND a.attempt = c.attempt""",
    # Commands that came again for what has ended: the answer goes out once more.
    "repeat": f"""
        {RESULT}
        SELECT a.key, a.reply_to, a.instance_id, a.tenant, a.result_event, a.result_type, a.result,
               a.attempt, a.result_outcome, a.trace, true
        FROM $s.workflow_action a
        JOIN unnest(%(key)s::text[], %(attempt)s::int[], %(request_hash)s::bytea[])
             AS c (key, attempt, hash) ON c.key = a.key AND c.hash = a.request_hash
        WHERE a.result_event <> '' AND a.result IS NOT NULL AND a.reply_to <> ''
          AND (a.status = 'succeeded' OR (a.status = 'failed' AND a.attempt = c.attempt))
        ON CONFLICT (event_id) DO NOTHING""",
    "clash": """
        INSERT INTO $s.workflow_clash AS w (key, request_hash, type, request, attempt, partition,
                                            log_offset)
        SELECT DISTINCT ON (c.key, c.hash) c.key, c.hash, c.type, c.request, c.attempt,
               c.partition, c.log_offset
        FROM $s.workflow_action a
        JOIN unnest(%(key)s::text[], %(request_hash)s::bytea[], %(type)s::text[],
                    %(request)s::bytea[], %(attempt)s::int[], %(partition)s::int[],
                    %(offset)s::bigint[])
             AS c (key, hash, type, request, attempt, partition, log_offset) ON c.key = a.key
        WHERE a.request_hash <> c.hash AND a.request_hash <> ''
        ON CONFLICT (key, request_hash) DO UPDATE SET seen = w.seen + 1, last_seen = now()
        RETURNING key""",
    "reject": """
        INSERT INTO $s.workflow_rejected (topic, partition, log_offset, record_key, headers, value,
                                          code, reason)
        VALUES (%(topic)s, %(partition)s, %(offset)s, %(record_key)s, %(headers)s, %(value)s,
                %(code)s, %(text)s)
        ON CONFLICT DO NOTHING""",
    "intake": """
        INSERT INTO $s.workflow_intake AS i (topic, partition, topic_id, position)
        SELECT topic, partition, topic_id, position
        FROM unnest(%(topic)s::text[], %(partition)s::int[], %(topic_id)s::text[],
                    %(position)s::bigint[]) AS p (topic, partition, topic_id, position)
        ORDER BY topic, partition
        ON CONFLICT (topic, partition) DO UPDATE
        SET topic_id = excluded.topic_id, position = excluded.position
        WHERE excluded.topic_id <> i.topic_id OR excluded.position > i.position""",
    "position": """
        SELECT topic_id, position FROM $s.workflow_intake WHERE topic = %s AND partition = %s""",
    # A ledger put back from a copy: what waits in it may have been called since (P32).
    "distrust": f"""
        UPDATE $s.workflow_action a
        SET status = 'unknown', dispatched = now(), first_sent = coalesce(first_sent, now()),
            recorded = now(), not_before = now(), reason = 'the ledger was restored from a copy',
            attempts = a.attempts || jsonb_build_object('epoch', a.epoch, 'attempt', a.attempt,
                'ended', now(), 'outcome', 'unknown', 'reason', 'the ledger was restored')
        WHERE target = %(target)s AND partition = %(partition)s AND status = 'planned'
          AND truth <> 'local'
        RETURNING {_TOLD}""",
    "undoing": """
        SELECT EXISTS (SELECT FROM $s.workflow_action
                       WHERE target = %(target)s AND status = 'planned'
                         AND direction = 'compensate')""",
    # What is to be undone and has not begun never begins, whenever its command comes (P33).
    "cancel": f"""
        INSERT INTO $s.workflow_action AS a (key, tenant, workflow, instance_id, state, action,
            direction, target, target_system, truth, type, request, request_hash, attempt, wanted,
            status, reply_to, trace, partition, log_offset, recorded, reason)
        SELECT {_FORWARD}, tenant, workflow, instance_id, state, action, 'forward', target,
            target_system, truth, '', '', '', 1, 1, 'cancelled', reply_to, trace, partition,
            log_offset, now(), 'its compensation came first'
        FROM $s.workflow_action c
        WHERE target = %(target)s AND status = 'planned' AND direction = 'compensate'
        ON CONFLICT (key) DO UPDATE
        SET status = 'cancelled', recorded = now(), reason = excluded.reason
        WHERE a.status = 'planned'""",
    "nothing": f"""
        SELECT c.key, c.attempt, c.epoch FROM $s.workflow_action c
        JOIN $s.workflow_action f ON f.key = {_FORWARD}
        WHERE c.target = %(target)s AND c.status = 'planned' AND c.direction = 'compensate'
          AND f.status IN ('failed', 'cancelled') AND NOT f.contradicted
        FOR UPDATE OF c SKIP LOCKED""",
    # In the order of the log; an instance's next waits until its earlier ones are decided, and a
    # compensation until what it undoes is done.
    "claim": f"""
        WITH due AS (
            SELECT c.key, c.status, c.dispatched, c.first_sent, c.lost
            FROM $s.workflow_action c
            LEFT JOIN $s.workflow_action f ON c.direction = 'compensate' AND f.key = {_FORWARD}
            WHERE c.target = %(target)s AND c.status = 'planned' AND c.not_before <= now()
              AND c.type = %(type)s
              AND (c.direction = 'forward' OR f.status = 'succeeded')
              AND (c.independent OR NOT EXISTS (
                SELECT FROM $s.workflow_action e
                WHERE e.instance_id = c.instance_id AND e.workflow = c.workflow
                  AND e.tenant = c.tenant AND e.status IN ('planned', 'in_flight')
                  AND e.target = c.target AND NOT e.independent
                  AND e.partition = c.partition AND e.log_offset < c.log_offset))
            ORDER BY c.planned, c.log_offset
            LIMIT %(most)s
            FOR UPDATE OF c SKIP LOCKED)
        UPDATE $s.workflow_action a
        SET status = 'in_flight', epoch = epoch + 1, worker = %(worker)s, dispatched = now(),
            first_sent = coalesce(a.first_sent, now()), lost = false, reference = '',
            lease_until = now() + %(lease_s)s * interval '1 second'
        FROM due WHERE a.key = due.key
        RETURNING {_ROW}""",
    # Unknown ones that may be called again under the same key.
    "recall": f"""
        WITH due AS (
            SELECT key, status, dispatched, first_sent, lost
            FROM $s.workflow_action
            WHERE target = %(target)s AND status = 'unknown' AND type = %(type)s
              AND {_DUE}
              AND first_sent > now() - %(horizon_s)s * interval '1 second'
            ORDER BY not_before LIMIT %(most)s
            FOR UPDATE SKIP LOCKED)
        UPDATE $s.workflow_action a
        SET status = 'in_flight', epoch = epoch + 1, worker = %(worker)s, dispatched = now(),
            lost = false, reference = '',
            lease_until = now() + %(lease_s)s * interval '1 second'
        FROM due WHERE a.key = due.key
        RETURNING {_ROW}""",
    # A question is no call: the epoch stays, and a late answer of the call still counts.
    "ask": f"""
        WITH due AS (
            SELECT key, status, dispatched, first_sent, lost
            FROM $s.workflow_action
            WHERE target = %(target)s AND status = 'unknown' AND type = ANY (%(types)s)
              AND {_DUE}
            ORDER BY not_before LIMIT %(most)s
            FOR UPDATE SKIP LOCKED)
        {_HOLD}""",
    # What was accepted and is not due yet; whoever takes it asks alone while it holds it.
    "poll": f"""
        WITH due AS (
            SELECT key, status, dispatched, first_sent, lost
            FROM $s.workflow_action
            WHERE target = %(target)s AND status = 'in_flight' AND type = %(type)s
              AND reference <> '' AND lease_until > now() AND not_before <= now()
              AND dispatched <= now() - %(poll_s)s * interval '1 second'
            ORDER BY not_before LIMIT %(most)s
            FOR UPDATE SKIP LOCKED)
        {_HOLD}""",
    "not_yet": """
        UPDATE $s.workflow_action a
        SET not_before = now() + o.pause_s * interval '1 second'
        FROM unnest(%(key)s::text[], %(epoch)s::int[], %(pause_s)s::float8[])
             AS o (key, epoch, pause_s)
        WHERE a.key = o.key AND a.epoch = o.epoch AND a.status = 'in_flight'
          AND a.reference <> ''""",
    # Whoever held these has died or hangs: what it did is not known. A local action's transaction
    # has certainly not been committed, for it would have settled the row.
    "run_out": f"""
        WITH out AS (
            SELECT key FROM $s.workflow_action
            WHERE target = %(target)s AND status = 'in_flight' AND lease_until < now()
            LIMIT %(most)s FOR UPDATE SKIP LOCKED)
        UPDATE $s.workflow_action a
        SET status = CASE WHEN truth = 'local' THEN 'planned' ELSE 'unknown' END,
            lost = reference = '', recorded = now(), lease_until = NULL, not_before = now(),
            reason = CASE WHEN reference = '' THEN 'the lease ran out: its process died or hangs'
                          ELSE 'accepted, and not answered in time' END,
            attempts = a.attempts || jsonb_build_object(
                'epoch', a.epoch, 'attempt', a.attempt, 'worker', a.worker, 'began', a.dispatched,
                'ended', now(), 'outcome', 'unknown', 'reason',
                CASE WHEN reference = '' THEN 'the lease ran out' ELSE 'not answered in time' END)
        FROM out WHERE a.key = out.key
        RETURNING {_TOLD}, a.status = 'unknown', a.reason""",
    # What a transaction whose COMMIT was not answered has claimed is ours if it stands so; nobody
    # has called it yet.
    "adopt": f"""
        WITH due AS (
            SELECT key, %(known)s AS status, dispatched, first_sent, lost
            FROM $s.workflow_action
            WHERE worker = %(worker)s AND status = 'in_flight' AND reference = ''
              AND (key, epoch) IN (SELECT * FROM unnest(%(key)s::text[], %(epoch)s::int[]))
            FOR UPDATE)
        UPDATE $s.workflow_action a
        SET lease_until = now() + o.lease_s * interval '1 second', dispatched = now()
        FROM due JOIN unnest(%(key)s::text[], %(lease_s)s::float8[]) AS o (key, lease_s)
             ON o.key = due.key
        WHERE a.key = due.key
        RETURNING {_ROW}""",
    "renew": """
        UPDATE $s.workflow_action a
        SET lease_until = now() + o.lease_s * interval '1 second'
        FROM unnest(%(key)s::text[], %(epoch)s::int[], %(lease_s)s::float8[])
             AS o (key, epoch, lease_s)
        WHERE a.key = o.key AND a.epoch = o.epoch AND a.status = 'in_flight'
        RETURNING a.key""",
    # The claim's own answer; and "it is done" from whomever, where that is not known yet (P30).
    # What failed is planned at once where a higher attempt was asked for meanwhile (P31).
    "settle": f"""
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
            SET {NEXT},
                already = o.already, result_type = o.type, result = o.value,
                result_event = o.event_id, result_outcome = o.outcome, reason = o.reason,
                recorded = CASE WHEN a.status = 'unknown' AND o.status = 'unknown' THEN a.recorded
                                ELSE now() END,
                lease_until = CASE WHEN o.status = 'in_flight'
                                   THEN now() + o.until_s * interval '1 second' END,
                reference = CASE WHEN o.reference = '' THEN a.reference ELSE o.reference END,
                not_before = now() + o.retry_after_s * interval '1 second',
                attempts = CASE WHEN a.status = 'unknown' AND o.status = 'unknown' THEN a.attempts
                    ELSE a.attempts || jsonb_build_object('epoch', o.epoch, 'attempt', o.attempt,
                        'worker', a.worker, 'began', a.dispatched, 'ended', now(),
                        'outcome', o.status, 'reason', o.reason) END
            FROM o
            WHERE a.key = o.key AND (
                (a.status IN ('in_flight', 'unknown') AND a.epoch = o.epoch)
                OR (a.status IN ('planned', 'in_flight', 'unknown') AND o.status = 'succeeded'))
            RETURNING a.key, a.reply_to, a.instance_id, a.tenant, o.event_id, o.type, o.value,
                      o.attempt AS answered, o.outcome, a.trace),
        held AS (
            SELECT s.*, o.event_id IS NOT NULL AS later
            FROM settled s LEFT JOIN LATERAL (
                SELECT r.event_id FROM $s.workflow_result r
                WHERE s.event_id <> '' AND r.topic = s.reply_to AND r.instance = s.instance_id
                  AND r.event_id <> ALL (%(published)s::text[]) LIMIT 1) o ON true),
        told AS (
            {RESULT}
            SELECT key, reply_to, instance_id, tenant, event_id, type, value, answered, outcome,
                   trace, later
            FROM held WHERE event_id <> '' AND reply_to <> ''
            ON CONFLICT (event_id) DO NOTHING)
        SELECT key, later FROM held""",
    # Said too late, or against what stands: kept, and not told.
    "late": """
        UPDATE $s.workflow_action a
        SET attempts = a.attempts || jsonb_build_object('epoch', o.epoch, 'attempt', o.attempt,
                'ended', now(), 'outcome', o.status, 'reason', o.reason, 'late', true),
            contradicted = a.contradicted OR o.against
        FROM (SELECT o.*, (o.status = 'succeeded' AND b.status IN ('failed', 'cancelled'))
                  OR (o.status = 'failed' AND b.status = 'succeeded' AND b.epoch = o.epoch)
                  AS against
              FROM unnest(%(key)s::text[], %(epoch)s::int[], %(attempt)s::int[],
                          %(status)s::text[], %(reason)s::text[])
                   AS o (key, epoch, attempt, status, reason)
              JOIN $s.workflow_action b ON b.key = o.key) o
        WHERE a.key = o.key AND (o.against OR jsonb_array_length(a.attempts) < 100)
        RETURNING a.key, o.against""",
    "tell": f"""
        {RESULT}
        SELECT *, true FROM unnest(%(key)s::text[], %(topic)s::text[], %(instance)s::text[],
            %(tenant)s::text[], %(event_id)s::text[], %(type)s::text[], %(value)s::bytea[],
            %(attempt)s::int[], %(outcome)s::text[], %(trace)s::text[])
            AS t (key, topic, instance, tenant, event_id, type, value, attempt, outcome, trace)
        WHERE topic <> ''
        ON CONFLICT (event_id) DO NOTHING""",
    # A user's own statements are planned as on any connection of theirs.
    "untuned": """
        SELECT set_config('plan_cache_mode', 'auto', true), set_config(name, 'on', true)
        FROM (VALUES ('enable_seqscan'), ('enable_hashjoin'), ('enable_mergejoin')) AS t (name)""",
    "lock": """
        SELECT FROM $s.workflow_action
        WHERE key = %(key)s AND epoch = %(epoch)s AND status = 'in_flight' FOR UPDATE""",
    # All of an instance that has something left, in order. What another target did is told by
    # its own executors: under another source it would be another event.
    "results": """
        SELECT r.key, r.topic, r.instance, r.tenant, r.event_id, r.type, r.value, r.attempt,
               r.outcome, r.trace
        FROM (SELECT DISTINCT topic FROM $s.workflow_result) t
        CROSS JOIN LATERAL (
            SELECT r.* FROM $s.workflow_result r JOIN $s.workflow_action a ON a.key = r.key
            WHERE r.topic = t.topic AND a.target = %(target)s AND r.instance IN (
                SELECT instance FROM $s.workflow_result
                WHERE topic = t.topic
                  AND (later OR recorded < now() - %(age_s)s * interval '1 second'))
            ORDER BY r.id LIMIT %(most)s) r
        ORDER BY r.id""",
    "published": "DELETE FROM $s.workflow_result WHERE event_id = ANY (%(ids)s::text[])",
    "standing": """
        SELECT count(*) FILTER (WHERE status = 'planned'),
               count(*) FILTER (WHERE status = 'in_flight'),
               count(*) FILTER (WHERE status = 'unknown'),
               count(*) FILTER (WHERE status <> 'planned' AND reference = ''
                   AND dispatched < now() - %(stuck_s)s * interval '1 second'),
               (SELECT count(*) FROM $s.workflow_action
                WHERE contradicted AND target = %(target)s),
               coalesce(extract(epoch FROM now()
                   - min(planned) FILTER (WHERE status = 'planned')), 0)::float8,
               coalesce(extract(epoch FROM now()
                   - min(dispatched) FILTER (WHERE status = 'unknown')), 0)::float8
        FROM $s.workflow_action
        WHERE target = %(target)s AND status IN ('planned', 'in_flight', 'unknown')""",
    # A forward action is kept for as long as its compensation is, or may be undone.
    "prune": """
        DELETE FROM $s.workflow_action WHERE key IN (
            SELECT a.key FROM $s.workflow_action a
            WHERE a.status IN ('succeeded', 'failed', 'cancelled')
              AND a.planned < now() - %(horizon_s)s * interval '1 second'
              AND a.recorded < now() - %(horizon_s)s * interval '1 second'
              AND NOT a.contradicted
              AND NOT EXISTS (SELECT FROM $s.workflow_result r WHERE r.key = a.key)
              AND NOT EXISTS (
                SELECT FROM $s.workflow_action b
                WHERE a.direction = 'forward'
                  AND b.key = left(a.key, -length('forward')) || 'compensate'
                  AND (b.recorded IS NULL OR b.status NOT IN ('succeeded', 'failed')
                       OR b.recorded >= now() - %(horizon_s)s * interval '1 second'))
            ORDER BY a.planned LIMIT %(most)s FOR UPDATE SKIP LOCKED)""",
    "prune_answers": """
        DELETE FROM $s.workflow_early_answer
        WHERE came < now() - %(horizon_s)s * interval '1 second'""",
    "prune_scanners": """
        DELETE FROM $s.workflow_scanner s
        WHERE scanned < now() - interval '1 day' AND EXISTS (
            SELECT FROM $s.workflow_scanner n
            WHERE n.target = s.target AND n.scanned > s.scanned)""",
    "scanned": """
        INSERT INTO $s.workflow_scanner (worker, target, scanned)
        VALUES (%(worker)s, %(target)s, now())
        ON CONFLICT (worker, target) DO UPDATE SET scanned = now()""",
}


@cache
def statements(schema: str) -> Mapping[str, bytes]:
    """The ledger's own statements, by name."""
    return filled(_TEXT, schema)


def filled(texts: Mapping[str, str], schema: str) -> Mapping[str, bytes]:
    """Statements with the name of the schema in the place of `$$s`.

    Raises:
        UsageError: BAD_SETTING, the name cannot be one.
    """
    name = schema_name(schema)
    return {key: Template(text).substitute(s=name).encode() for key, text in texts.items()}
