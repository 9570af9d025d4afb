-- Manual activation (P13): the version chosen last is the one that new instances begin with.
CREATE TABLE $schema.workflow_activation (
    workflow text COLLATE "C" NOT NULL,
    number   bigint GENERATED ALWAYS AS IDENTITY,
    version  integer NOT NULL,
    who      text NOT NULL,
    reason   text NOT NULL,
    chosen   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workflow, number)
);
