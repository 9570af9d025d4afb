-- What a partition goes on with and a person should see; empty where there is nothing.
ALTER TABLE $schema.workflow_partition ADD COLUMN alarm text NOT NULL DEFAULT '';

CREATE OR REPLACE VIEW $views.partitions AS
SELECT topic, partition, workflow, topic_id, partitions, consumer_group, epoch, owner, released,
       marker, rows_to, decisions, encode(digest, 'hex') AS digest, counts, base, takeovers,
       fence, choice, claimed, saved, alarm
FROM $schema.workflow_partition;
