-- Events of a user's own service, written in its own transactions and not on the log yet.
CREATE TABLE $schema.workflow_outbox (
    -- given under the instance's lock: of one instance, the order of commits
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic    text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    headers  text[] NOT NULL, -- name, value, name, value, …
    value    bytea NOT NULL,
    written  timestamptz NOT NULL DEFAULT now(),
    -- why Kafka will never take it: it and what follows it of its instance wait for a person
    fault    text NOT NULL DEFAULT ''
);
CREATE INDEX ON $schema.workflow_outbox (topic, instance) WHERE fault <> '';
