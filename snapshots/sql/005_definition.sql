-- Versions of definitions, each with the fingerprint of its first use.
CREATE TABLE $schema.workflow_definition (
    workflow    text COLLATE "C" NOT NULL,
    version     integer NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    -- text, not JSONB: the canonical form is what is compared
    canonical   text NOT NULL,
    first_used  timestamptz NOT NULL DEFAULT now(),
    state       text COLLATE "C" NOT NULL DEFAULT 'active'
        CHECK (state IN ('active', 'retired')),
    PRIMARY KEY (workflow, version)
);
