"""The pipeline: partitioner, schedules, cells and the step that runs them."""
