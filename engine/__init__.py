"""Who runs it: campaign, pipeline, controller, migration, audit, resume, public Python API."""
