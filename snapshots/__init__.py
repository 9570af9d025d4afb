"""PostgreSQL: migrations, markers, snapshots, instance rows and the event-log index."""
